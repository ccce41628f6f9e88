/** The actions on runs, with JupyterLab's services. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Clipboard, Notification } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import type { RunActions } from "../actions";
import { cellSource, contentsPaths } from "../cell";
import type { ExportFormat, RunRow, StopResult } from "../generated";
import { title } from "../panel/format";
import { isReadable, isSearch } from "../panel/runlist";
import { messageOf } from "../polling";
import { h } from "../view/dom";
import { askLabels, askNote, askTitle, confirmDelete, confirmStop, confirmStopServer, showMessage } from "./dialogs";
import { showCell } from "./notebook";
import type { IRuns } from "./runs";
import type { PageTabs } from "./tabs";

/** JupyterLab truncates longer notifications. */
const MAX_NOTIFICATION_CHARACTERS = 140;

/** How long, and how often, the server is asked for the result of stopping a run without its kernel. */
const STOP_MS = 180_000;
const STOP_POLL_MS = 2000;

export class LabActions implements RunActions {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly runs: IRuns,
    private readonly tabs: Readonly<Record<"run" | "search" | "compare", PageTabs>>,
  ) {}

  openRun(run: string): void {
    this.tabs.run.open([run]);
  }

  /** Opens the search in a tab of its own, or activates that tab. */
  openSearch(search: string): void {
    this.tabs.search.open([search]);
  }

  /** Compares runs, the older ones first: a difference is from the earlier run to the later one. */
  compare(runs: string[]): void {
    const created = (run: string) => this.runs.feed.list.rows.get(run)?.created ?? 0;
    this.tabs.compare.open([...runs].sort((a, b) => created(a) - created(b)));
  }

  async openNotebook(run: string): Promise<void> {
    await this.attempt(async () => {
      const { trans, api } = this.runs;
      const details = await api.run(run);
      if (!details.notebook) {
        this.notify(trans.__("The notebook of %1 is unknown", title(details)));
        return;
      }
      const { contents } = this.app.serviceManager;
      for (const path of contentsPaths(details.notebook, PageConfig.getOption("serverRoot"))) {
        const found = await contents.get(path, { content: false }).catch(() => null);
        if (found?.type === "notebook") return showCell(this.app, path, details.spec);
      }
      this.notify(trans.__("%1 is not among the files of this server", details.notebook), "error");
    });
  }

  async copyAsCell(run: string): Promise<void> {
    await this.attempt(async () => {
      const details = await this.runs.api.run(run);
      Clipboard.copyToSystem(cellSource(details.spec));
      this.notify(this.runs.trans.__("Copied the cell of %1 to the clipboard", title(details)), "success");
    });
  }

  async stop(run: string): Promise<StopResult | null> {
    return (await this.stopAll([run]))[0] ?? null;
  }

  async stopSearch(search: string): Promise<StopResult | null> {
    return (await this.stopAll([], [search]))[0] ?? null;
  }

  /** Stops runs and searches, after one confirmation. Returns the results of those that did not fail. */
  async stopAll(runs: string[], searches: string[] = []): Promise<StopResult[]> {
    const { api, feed, trans } = this.runs;
    const ids = [...searches, ...runs];
    const titles = ids.map((id) => this.titleOf(id));
    const areMonitors = runs.every((id) => this.isMonitor(id));
    const kind = searches.length ? "searches" : areMonitors ? "monitors" : "runs";
    if (!ids.length || !(await confirmStop(titles, kind, trans))) return [];
    const results = await Promise.all(
      ids.map(async (run) => {
        const result = await this.attempt(() => api.stop(run, searches.includes(run) ? "searches" : "runs"));
        return result && { run, result };
      }),
    );
    feed.refresh();
    const known = results.filter((result) => result !== null);
    for (const { run, result } of known) {
      this.showStopResult(result);
      if (result.outcome === "stopping") void this.attempt(() => this.awaitStop(run));
    }
    return known.map(({ result }) => result);
  }

  /** Ends a served model, after a confirmation; one whose server has died is removed at once. */
  async stopServer(name: string): Promise<void> {
    const { api, servers, trans } = this.runs;
    const alive = servers.servers.find((server) => server.name === name)?.alive;
    if (alive && !(await confirmStopServer(name, trans))) return;
    const message = await this.attempt(() => api.stopServer(name));
    if (message !== null) this.notify(message);
    servers.refresh();
  }

  async delete(run: string): Promise<boolean> {
    return (await this.deleteAll([run])) === 1;
  }

  /** Deletes runs, and searches with their trials, after one confirmation. Returns how many were deleted. */
  async deleteAll(ids: string[]): Promise<number> {
    const { api, feed, trans } = this.runs;
    const found = await Promise.all(ids.map((id) => feed.list.get(id) ?? this.attempt(() => api.run(id))));
    const rows = found.filter((row) => row !== null);
    const trials = [...feed.list.rows.values()].filter((row) => ids.includes(feed.list.searchOf(row)?.id ?? ""));
    if (!rows.length || !(await confirmDelete(rows, trials, trans))) return 0;
    // A trial goes with its search.
    const own = rows.filter((row) => isSearch(row) || !ids.includes(feed.list.searchOf(row)?.id ?? ""));
    const deleted = await Promise.all(
      own.map((row) => this.attempt(() => api.delete(row.id, isSearch(row) ? "searches" : "runs").then(() => true))),
    );
    feed.refresh();
    return deleted.filter(Boolean).length;
  }

  async rename(run: string): Promise<void> {
    await this.attempt(async () => {
      const row = await this.row(run);
      const title = await askTitle(row.title, row.name, this.runs.trans);
      if (title !== null && title !== row.title) await this.runs.api.update(run, { title });
      this.runs.feed.refresh();
    });
  }

  async label(run: string): Promise<void> {
    await this.attempt(async () => {
      const labels = await askLabels((await this.row(run)).labels, this.runs.trans);
      if (labels !== null) await this.runs.api.update(run, { labels });
      this.runs.feed.refresh();
    });
  }

  async note(run: string): Promise<void> {
    await this.attempt(async () => {
      const note = await askNote((await this.runs.api.run(run)).note, this.runs.trans);
      if (note !== null) await this.runs.api.update(run, { note });
      this.runs.feed.refresh();
    });
  }

  exportRun(run: string, format: ExportFormat): void {
    h("a", { href: this.runs.api.exportUrl(run, format), download: true }).click();
  }

  downloadFile(run: string, file: string): void {
    h("a", { href: this.runs.api.fileUrl(run, file), download: true }).click();
  }

  private notify(message: string, kind: "info" | "error" | "success" = "info"): void {
    if (message.length > MAX_NOTIFICATION_CHARACTERS) void showMessage([message], this.runs.trans);
    else Notification.emit(message, kind, { autoClose: kind === "error" ? false : 5000 });
  }

  /** Waits for the result of a stop that takes longer than its request, and shows it. */
  private async awaitStop(run: string): Promise<void> {
    for (const deadline = Date.now() + STOP_MS; Date.now() < deadline; ) {
      await new Promise((resolve) => setTimeout(resolve, STOP_POLL_MS));
      const { stop } = await this.runs.api.run(run);
      if (stop?.outcome === "stopping") continue;
      if (stop) this.showStopResult(stop);
      this.runs.feed.refresh();
      return;
    }
  }

  private showStopResult({ message, how }: StopResult): void {
    if (how) void showMessage([message, how], this.runs.trans);
    else this.notify(message);
  }

  private isMonitor(run: string): boolean {
    const row = this.runs.feed.list.rows.get(run);
    return row !== undefined && isReadable(row) && row.strategy === "monitor";
  }

  private titleOf(run: string): string {
    const row = this.runs.feed.list.get(run);
    return row ? title(row) : run;
  }

  /** The row of the run in the list; the server is asked if it is not listed. */
  private async row(run: string): Promise<RunRow> {
    const row = this.runs.feed.list.rows.get(run);
    return row && isReadable(row) ? row : this.runs.api.run(run);
  }

  /** The result of an action; null if it failed, which is shown to the reader. */
  private async attempt<T>(action: () => Promise<T>): Promise<T | null> {
    try {
      return await action();
    } catch (error) {
      this.notify(messageOf(error), "error");
      return null;
    }
  }
}
