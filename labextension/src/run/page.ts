/** The tab of a run: charts, log, cell, files, details and changes. Independent of JupyterLab. */

import type { Api, Row } from "../api";
import { FollowedPage, type PageOptions } from "../followedpage";
import { Follower } from "../follower";
import type { SettingValues } from "../generated";
import { shownState, title } from "../panel/format";
import { isReadable } from "../panel/runlist";
import { isVisible } from "../polling";
import { setAttribute } from "../view/dom";
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

export interface RunPageOptions extends PageOptions {
  api: Pick<Api, "view" | "run" | "replay" | "logs">;
  settings: Readonly<Pick<SettingValues, "pollSeconds">>;
  run: string;
}

/** Draws the run into `host` and follows it until it has ended or `dispose` is called. A hidden page does not poll. */
export class RunPage extends FollowedPage<RunPageOptions> {
  protected readonly deletedMessage: string;
  protected readonly finalStatuses = [404, 409];
  protected readonly loaded = true; // there is always a header
  private readonly source: DetailsSource;
  private readonly header: PageHeader;
  private readonly charts: ChartsTab;
  private readonly logs: LogsTab;
  private readonly detailsTabs: DetailsTab[];
  private readonly changes: DetailsTab;
  private state = "";
  /** The length of the list when the previous run was looked up. */
  private listLength = -1;

  constructor(
    host: HTMLElement,
    options: RunPageOptions,
    private readonly follower = new Follower(options.api, options.run),
  ) {
    super(host, "ddl-runpage", options, follower);
    const { api, run, actions, trans, feed, settings } = options;
    const { model } = follower;
    this.deletedMessage = trans.__("This run was deleted. What has been loaded of it is still shown.");
    this.source = new DetailsSource(api, run);
    this.header = new PageHeader(run, actions, trans);
    this.charts = new ChartsTab(model, new Recording(api, run), trans, () => void actions.stop(run));
    this.logs = new LogsTab({
      pages: (rank) => new LogPages(api, run, rank),
      ranks: () => model.rankEnd,
      live: () => !model.over,
      visible: () => isVisible(host),
      seconds: () => settings.pollSeconds,
      trans,
    });
    const cell = new DetailsTab(this.source, trans, (details) => cellNodes(details, actions, trans));
    const files = new DetailsTab(this.source, trans, (of) => fileNodes(of, actions, trans));
    const details = new DetailsTab(this.source, trans, (of) => detailNodes(of, trans, model.state?.started));
    this.changes = new DetailsTab(this.source, trans, (of) =>
      changeNodes(of, {
        rows: () => feed.list.rows.values(),
        details: (other) => api.run(other),
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
    this.root.append(this.header.element, tabs.element);
    keepKeys(this.root);
    this.start();
  }

  override dispose(): void {
    super.dispose();
    this.logs.hide();
    this.charts.dispose();
  }

  protected override get row(): Row | undefined {
    return this.options.feed.list.rows.get(this.options.run);
  }

  protected override draw(): void {
    const { model } = this.follower;
    this.charts.draw();
    this.drawHeader();
    const state = model.state?.state ?? "";
    if (state === this.state) return;
    this.state = state;
    this.source.invalidate();
    for (const tab of this.detailsTabs) void tab.update();
  }

  /** The list has the title, and tells which run is the previous one. */
  protected override drawRow(): void {
    this.drawHeader();
    const length = this.options.feed.list.rows.size;
    if (length === this.listLength) return;
    this.listLength = length;
    void this.changes.update(true);
  }

  private drawHeader(): void {
    const { model } = this.follower;
    const { row, deleted } = this;
    const name = row ? title(row) : (model.run?.name ?? this.options.run);
    // A long run is read in parts from its beginning, so the list knows of its end earlier.
    const ended = row && isReadable(row) && !row.live;
    const state = ended ? shownState(row) : (model.state?.state ?? "");
    this.header.draw({ title: name, state, live: state !== "" && !ended && !model.over, deleted });
    setAttribute(this.root, "aria-label", name);
  }
}
