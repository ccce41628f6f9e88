/** What a reader can do with a run, with JupyterLab's services. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Clipboard, Notification } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import type { RunActions } from "../actions";
import type { ExportFormat, Row, Run, RunDetails, Stop } from "../api";
import { readable } from "../panel/runlist";
import { title } from "../panel/words";
import { cellSource, contentsPaths } from "./cell";
import { askLabels, askTitle, confirmRemove, confirmStop, tell } from "./dialogs";
import { showCell } from "./notebook";
import type { IRuns } from "./runs";

/** A notification of JupyterLab cuts off what is longer. */
const NOTIFICATION_CHARACTERS = 140;

/** How long the server may look for a run without a kernel, and how often it is asked. */
const STOP_MS = 180_000;
const STOP_POLL_MS = 2000;

/** Shows what the tabs show. */
export interface Tabs {
  openRun(run: string): void;
  compare(runs: string[]): void;
}

export class LabActions implements RunActions {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly runs: IRuns,
    private readonly tabs: Tabs,
  ) {}

  openRun(run: string): void {
    this.tabs.openRun(run);
  }

  compare(runs: string[]): void {
    this.tabs.compare(runs);
  }

  async openNotebook(run: string): Promise<void> {
    await this.tried(async () => {
      const details = await this.details(run);
      const { trans } = this.runs;
      if (!details.notebook) {
        this.notify(trans.__("It is not known which notebook %1 belongs to", title(details)));
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
    await this.tried(async () => {
      const details = await this.details(run);
      Clipboard.copyToSystem(cellSource(details.spec));
      this.notify(this.runs.trans.__("The cell of %1 is in the clipboard", title(details)), "success");
    });
  }

  async stop(run: string): Promise<Stop | null> {
    return (await this.stopAll([run]))[0] ?? null;
  }

  /** Asks once, then ends these runs. */
  async stopAll(runs: string[]): Promise<Stop[]> {
    const { api, feed, trans } = this.runs;
    if (
      !runs.length ||
      !(await confirmStop(
        runs.map((run) => this.name(run)),
        trans,
      ))
    )
      return [];
    const outcomes = await Promise.all(runs.map((run) => this.tried(() => api.stop(run))));
    feed.refresh();
    const told = outcomes.filter((outcome) => outcome !== null);
    for (const [i, run] of runs.entries()) {
      const outcome = outcomes[i];
      if (outcome) this.tellStop(outcome);
      if (outcome?.outcome === "stopping") void this.tried(() => this.awaitStop(run));
    }
    return told;
  }

  /** Tells what became of a stop that takes longer than a request. */
  private async awaitStop(run: string): Promise<void> {
    for (const until = Date.now() + STOP_MS; Date.now() < until; ) {
      await new Promise((resolve) => setTimeout(resolve, STOP_POLL_MS));
      const { stop } = await this.details(run);
      if (stop?.outcome === "stopping") continue;
      if (stop) this.tellStop(stop);
      this.runs.feed.refresh();
      return;
    }
  }

  private tellStop({ message, how }: Stop): void {
    if (how) void tell([message, how], this.runs.trans);
    else this.notify(message);
  }

  async remove(run: string): Promise<boolean> {
    return (await this.removeAll([run])) === 1;
  }

  /** Asks once, then deletes these runs; how many are gone. */
  async removeAll(runs: string[]): Promise<number> {
    const { api, feed, trans } = this.runs;
    const rows = runs.map((run) => feed.list.rows.get(run)).filter((row): row is Row => row !== undefined);
    if (!rows.length || !(await confirmRemove(rows, trans))) return 0;
    const done = await Promise.all(rows.map(({ id }) => this.tried(() => api.remove(id).then(() => true))));
    feed.refresh();
    return done.filter(Boolean).length;
  }

  async rename(run: string): Promise<void> {
    await this.tried(async () => {
      const now = await this.known(run);
      const name = await askTitle(now.title, now.name, this.runs.trans);
      if (name !== null && name !== now.title) await this.runs.api.patch(run, { title: name });
      this.runs.feed.refresh();
    });
  }

  async label(run: string): Promise<void> {
    await this.tried(async () => {
      const labels = await askLabels((await this.known(run)).labels, this.runs.trans);
      if (labels !== null) await this.runs.api.patch(run, { labels });
      this.runs.feed.refresh();
    });
  }

  download(url: string): void {
    const link = document.createElement("a");
    link.href = url;
    link.download = "";
    link.click();
  }

  exportRun(run: string, format: ExportFormat): void {
    this.download(this.runs.api.exportUrl(run, format));
  }

  notify(message: string, kind: "info" | "error" | "success" = "info"): void {
    if (message.length > NOTIFICATION_CHARACTERS) void tell([message], this.runs.trans);
    else Notification.emit(message, kind, { autoClose: kind === "error" ? false : 5000 });
  }

  private name(run: string): string {
    const row = this.runs.feed.list.rows.get(run);
    return row ? title(row) : run;
  }

  /** What the list says of the run; a run that it does not have is asked for. */
  private async known(run: string): Promise<Run> {
    const row = this.runs.feed.list.rows.get(run);
    return row && readable(row) ? row : this.details(run);
  }

  private async details(run: string): Promise<RunDetails> {
    const details = await this.runs.api.run(run);
    if (!readable(details)) throw new Error(details.problem);
    return details as RunDetails;
  }

  /** What fails is told; null then. */
  private async tried<T>(act: () => Promise<T>): Promise<T | null> {
    try {
      return await act();
    } catch (error) {
      this.notify(error instanceof Error ? error.message : String(error), "error");
      return null;
    }
  }
}
