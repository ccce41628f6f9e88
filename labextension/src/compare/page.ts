/** The tab of a comparison: overlaid charts, what differs between the runs, their cells. Independent of JupyterLab. */

import type { RunActions } from "../actions";
import type { Api } from "../api";
import type { SettingValues } from "../generated";
import type { ListFeed } from "../panel/feed";
import { isVisible } from "../polling";
import type { Translation } from "../translation";
import { h, setAttribute, setNote, setVisible } from "../view/dom";
import { LiveView } from "../view/liveview";
import type { Palette } from "../view/theme";
import { AXES, type Axis } from "./align";
import { axisSelector } from "./axisselector";
import { CellDiff } from "./celldiff";
import { type Omitted, OverlaidCharts } from "./charts";
import { Comparison } from "./comparison";
import { differences } from "./differences";
import { Legend } from "./legend";
import { MAX_RUNS } from "./linestyle";
import { DifferenceTable } from "./table";
import "uplot/dist/uPlot.min.css";
import "../view/view.css";
import "./compare.css";

export interface ComparePageOptions {
  api: Api;
  feed: ListFeed;
  settings: Readonly<Pick<SettingValues, "pollSeconds">>;
  trans: Translation;
  actions: Pick<RunActions, "openRun">;
  runs: readonly string[];
}

/** Draws a comparison into `host` until `dispose` is called. A hidden tab does not poll. */
export class ComparePage extends LiveView {
  private readonly comparison: Comparison;
  private readonly charts: OverlaidCharts;
  private readonly table: DifferenceTable;
  private readonly cells: CellDiff;
  private readonly legend: Legend;
  private readonly banner = h("p", { class: "ddl-banner", role: "status" });
  private readonly limitNote = h("p", { class: "ddl-compare-note" });
  private readonly empty = h("p", { class: "ddl-empty ddl-dim", role: "status" });
  private readonly omittedNote = h("p", { class: "ddl-compare-note", role: "status" });
  private readonly redraw = () => this.draw();
  private axis: Axis = AXES[0];

  constructor(
    private readonly host: HTMLElement,
    private readonly options: ComparePageOptions,
  ) {
    super("ddl-run ddl-compare");
    const { api, feed, settings, trans, actions, runs } = options;
    this.comparison = new Comparison(runs, {
      api,
      list: feed.list,
      trans,
      seconds: () => settings.pollSeconds,
      visible: () => isVisible(host),
      onChange: this.redraw,
    });
    this.charts = new OverlaidCharts(trans, () => this.palette());
    this.table = new DifferenceTable(trans);
    this.cells = new CellDiff(trans);
    this.legend = new Legend(this.comparison.runs, {
      trans,
      onToggle: this.redraw,
      open: (run) => actions.openRun(run),
    });
    const axes = axisSelector(trans, (axis) => {
      this.axis = axis;
      this.draw();
    });
    setAttribute(this.root, "aria-label", trans.__("Comparison of runs"));
    const charts = [this.legend.element, axes, this.charts.element, this.empty, this.omittedNote];
    this.root.append(this.banner, this.limitNote, ...charts, this.table.element, this.cells.element);
    feed.changed.connect(this.redraw);
    this.start(host);
  }

  override dispose(): void {
    super.dispose();
    this.options.feed.changed.disconnect(this.redraw);
    this.comparison.dispose();
    this.charts.destroy();
  }

  protected override drawNow(): void {
    if (!isVisible(this.host)) return;
    this.palette();
    const { comparison } = this;
    const { trans } = this.options;
    const { runs, error, omitted } = comparison;
    const titleOf = comparison.title.bind(comparison);
    setNote(this.banner, error && trans.__("The last known state is shown: %1", error));
    const limit = trans.__("Only the first %1 of %2 runs are shown.", MAX_RUNS, runs.length + omitted);
    setNote(this.limitNote, omitted ? limit : "");
    this.legend.draw(titleOf);
    const undrawn = this.charts.draw(runs, this.axis);
    setNote(this.empty, this.charts.element.childElementCount ? "" : this.emptyMessage());
    setNote(this.omittedNote, this.omittedMessage(undrawn));
    const known = runs.filter(({ details }) => details !== null);
    setVisible(this.table.element, known.length > 1);
    const columns = known.map((run) => ({ style: run.style, title: titleOf(run) }));
    const compared = known.map((run) => ({ ...run, letter: run.style.letter, model: run.follower.model }));
    this.table.draw(columns, differences(compared, trans, Date.now() / 1000));
    this.cells.draw(runs, titleOf);
  }

  /** Why there are no charts. */
  private emptyMessage(): string {
    const { trans } = this.options;
    const { runs, error } = this.comparison;
    const available = runs.filter(({ problem }) => !problem);
    if (!available.length) return trans.__("None of these runs is available.");
    if (!runs.some(({ shown }) => shown)) return trans.__("All runs are hidden.");
    if (available.some(({ follower }) => !follower.model.run)) {
      return error ? trans.__("Waiting for Jupyter Server …") : trans.__("Loading the runs …");
    }
    return available.some(({ follower }) => !follower.model.over)
      ? trans.__("The charts appear with the first steps.")
      : trans.__("These runs reported no steps.");
  }

  /** What the charts leave out; empty if nothing. */
  private omittedMessage({ runs, metrics }: Omitted): string {
    const { trans } = this.options;
    const letters = runs.map(({ style }) => style.letter).join(", ");
    const parts: string[] = [];
    if (letters && this.axis === "epoch")
      parts.push(trans.__("Not shown, because the epochs are unknown: %1.", letters));
    else if (letters && this.axis === "sample")
      parts.push(trans.__("Not shown, because the numbers of samples are unknown: %1.", letters));
    else if (letters) parts.push(trans.__("Not shown, because the times of the steps are unknown: %1.", letters));
    if (metrics) parts.push(trans._n("%1 more metric has no chart.", "%1 more metrics have no chart.", metrics));
    return parts.join(" ");
  }

  protected override readPalette(): Palette {
    const colours = super.readPalette();
    // The legend and the table use the same colours as the charts.
    colours.lines.forEach((colour, i) => {
      this.root.style.setProperty(`--ddl-run-${i}`, colour);
    });
    return colours;
  }

  protected override recolour(): void {
    super.recolour();
    this.charts.recolour();
    this.draw();
  }
}
