/** The tab of a run: charts, log, cell, files, details and changes. Independent of JupyterLab. */

import type { RunActions, Settings } from "../actions";
import { type Api, ApiError } from "../api";
import { Follower } from "../follower";
import type { ListFeed } from "../panel/feed";
import { title } from "../panel/format";
import { isReadable } from "../panel/runlist";
import { follow, isVisible, messageOf, WAIT_SECONDS } from "../polling";
import type { Translation } from "../translation";
import { h, setAttribute, setText, setVisible } from "../view/dom";
import { keepKeys } from "../view/keys";
import { cellNodes } from "./celltab";
import { changeNodes } from "./changestab";
import { ChartsTab } from "./chartstab";
import { DetailsSource } from "./details";
import { DetailsTab } from "./detailstab";
import { fileNodes } from "./filestab";
import { LogPages } from "./logpages";
import { LogsTab } from "./logstab";
import { PageHeader } from "./pageheader";
import { detailNodes } from "./properties";
import { Recording } from "./recording";
import { Tabs } from "./tabs";
import "uplot/dist/uPlot.min.css";
import "../view/view.css";
import "./run.css";

export interface RunPageOptions {
  api: Pick<Api, "view" | "run" | "replay" | "logs">;
  feed: ListFeed;
  settings: Settings;
  actions: RunActions;
  trans: Translation;
  run: string;
}

/** Draws the run into `host` and follows it until it has ended or `dispose` is called. A hidden page does not poll. */
export function createRunPage(host: HTMLElement, options: RunPageOptions): { dispose(): void } {
  return new RunPage(host, options);
}

class RunPage {
  private readonly aborter = new AbortController();
  private readonly follower: Follower;
  private readonly source: DetailsSource;
  private readonly banner = h("p", { class: "ddl-banner", role: "status", hidden: true });
  private readonly header: PageHeader;
  private readonly charts: ChartsTab;
  private readonly logs: LogsTab;
  private readonly detailsTabs: DetailsTab[];
  private readonly changes: DetailsTab;
  private readonly root: HTMLElement;
  private readonly onListChange = () => this.listChanged();
  private state = "";
  /** The length of the list when the previous run was looked up. */
  private listLength = -1;
  private wasLive = false;
  private wasListed = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly options: RunPageOptions,
  ) {
    const { api, run, actions, trans, feed, settings } = options;
    this.follower = new Follower(api, run);
    const { model } = this.follower;
    this.source = new DetailsSource(api, run);
    this.header = new PageHeader(run, actions, trans);
    this.charts = new ChartsTab(model, new Recording(api, run), trans, () => void actions.stop(run));
    this.logs = new LogsTab({
      pages: (rank) => new LogPages(api, run, rank),
      workers: () => model.run?.workers ?? 0,
      live: () => !model.over,
      visible: () => isVisible(host),
      seconds: () => settings.pollSeconds,
      trans,
    });
    const cell = new DetailsTab(this.source, trans, (details) => cellNodes(details, actions, trans));
    const files = new DetailsTab(this.source, trans, (of) => fileNodes(of, trans));
    const details = new DetailsTab(this.source, trans, (of) => detailNodes(of, trans));
    this.changes = new DetailsTab(this.source, trans, (of) =>
      changeNodes(of, {
        rows: () => feed.list.rows.values(),
        details: (other) => new DetailsSource(api, other).get(),
        actions,
        trans,
      }),
    );
    this.detailsTabs = [cell, files, details, this.changes];
    const tabs = new Tabs(trans.__("Parts of the run"), [
      { title: trans.__("Charts"), content: this.charts },
      { title: trans.__("Logs"), content: this.logs },
      { title: trans.__("Cell"), content: cell },
      { title: trans.__("Files"), content: files },
      { title: trans.__("Details"), content: details },
      { title: trans.__("Changes"), content: this.changes },
    ]);
    this.root = h("section", { class: "ddl-runpage" }, this.banner, this.header.element, tabs.element);
    keepKeys(this.root);
    host.append(this.root);
    feed.changed.connect(this.onListChange);
    this.listChanged();
    void this.follow();
  }

  dispose(): void {
    this.aborter.abort();
    this.options.feed.changed.disconnect(this.onListChange);
    this.logs.hide();
    this.charts.dispose();
    this.root.remove();
  }

  private follow(): Promise<void> {
    const { signal } = this.aborter;
    const failed = (error: unknown) => this.failed(error);
    return follow(this.host, signal, () => this.poll(signal), failed);
  }

  private async poll(signal: AbortSignal): Promise<boolean> {
    await this.follower.poll(WAIT_SECONDS, signal);
    this.setBanner("");
    this.draw();
    return this.follower.done;
  }

  /** Tells of it; whether there is no use in another try. */
  private failed(error: unknown): boolean {
    const gone = error instanceof ApiError && (error.status === 404 || error.status === 409);
    const message = messageOf(error);
    this.setBanner(gone ? message : this.options.trans.__("The last known state is shown: %1", message));
    return gone;
  }

  private draw(): void {
    const { model } = this.follower;
    this.charts.draw();
    this.drawHeader();
    const state = model.state?.state ?? "";
    if (state === this.state) return;
    this.state = state;
    this.source.invalidate();
    for (const tab of this.detailsTabs) void tab.update();
  }

  /** The panel's list has changed: it has the title, tells whether the run exists, and which run is the previous one. */
  private listChanged(): void {
    this.drawHeader();
    const row = this.options.feed.list.rows.get(this.options.run);
    const live = row !== undefined && isReadable(row) && row.live;
    const continues = live && !this.wasLive && this.follower.done; // it was lost, and is attached again
    this.wasLive = live;
    if (continues) void this.follow();
    const length = this.options.feed.list.rows.size;
    if (length === this.listLength) return;
    this.listLength = length;
    void this.changes.update(true);
  }

  private drawHeader(): void {
    const { run, feed, trans } = this.options;
    const { model } = this.follower;
    const row = feed.list.rows.get(run);
    const name = row ? title(row) : (model.run?.name ?? run);
    // The list may be incomplete: a run counts as deleted only if it was listed before.
    const deleted = model.over && !row && this.wasListed;
    if (row) this.wasListed = true;
    if (deleted) this.setBanner(trans.__("This run was deleted. What has been loaded of it is still shown."));
    // A long run is read in parts from its beginning, so the list knows of its end earlier.
    const ended = row && isReadable(row) && !row.live;
    const state = ended ? row.state : (model.state?.state ?? "");
    this.header.draw({ title: name, state, live: state !== "" && !ended && !model.over, deleted });
    setAttribute(this.root, "aria-label", name);
  }

  private setBanner(text: string): void {
    setText(this.banner, text);
    setVisible(this.banner, text !== "");
  }
}
