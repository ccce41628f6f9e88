/** Runs over each other, in a tab: their lines, what differs between them, their cells. Plain DOM over the server. */

import type { RunActions, Settings } from "../actions";
import type { Api } from "../api";
import { isSeen } from "../follow";
import type { RunFeed } from "../panel/feed";
import type { Translation } from "../translation";
import { attribute, h, show, text } from "../view/dom";
import { keepKeys } from "../view/keys";
import { isDark, onThemeChange, type Palette, palette } from "../view/theme";
import { AXES, type Axis } from "./align";
import { axisChoice } from "./axischoice";
import { CellDifference } from "./cells";
import { type Left, OverlaidCharts } from "./charts";
import { differences } from "./differences";
import { Comparison } from "./feed";
import { Legend } from "./legend";
import { MOST_RUNS } from "./look";
import { DifferenceTable } from "./table";
import "uplot/dist/uPlot.min.css";
import "../view/view.css";
import "./compare.css";

export interface ComparePageOptions {
  api: Api;
  feed: RunFeed;
  settings: Settings;
  trans: Translation;
  actions: Pick<RunActions, "openRun">;
  runs: readonly string[];
}

/** Draws the runs into `host` until `dispose` is called. A hidden tab asks nothing. */
export function createComparePage(host: HTMLElement, options: ComparePageOptions): { dispose(): void } {
  return new ComparePage(host, options);
}

class ComparePage {
  private readonly root: HTMLElement;
  private readonly comparison: Comparison;
  private readonly charts: OverlaidCharts;
  private readonly table: DifferenceTable;
  private readonly cells: CellDifference;
  private readonly legend: Legend;
  private readonly banner = h("p", { class: "ddl-banner", role: "status" });
  private readonly crowd = h("p", { class: "ddl-compare-note" });
  private readonly empty = h("p", { class: "ddl-empty ddl-dim", role: "status" });
  private readonly undrawn = h("p", { class: "ddl-compare-note", role: "status" });
  private readonly stopListening: () => void;
  private readonly redraw = () => this.draw();
  private axis: Axis = AXES[0];
  private colours: Palette | null = null;
  private frame = 0;

  constructor(
    private readonly host: HTMLElement,
    private readonly options: ComparePageOptions,
  ) {
    const { api, feed, settings, trans, actions, runs } = options;
    this.comparison = new Comparison(runs, {
      api,
      list: feed.list,
      trans,
      seconds: () => settings.pollSeconds,
      seen: () => isSeen(host),
      changed: this.redraw,
    });
    this.charts = new OverlaidCharts(trans, () => this.palette());
    this.table = new DifferenceTable(trans);
    this.cells = new CellDifference(trans);
    this.legend = new Legend(this.comparison.runs, trans, this.redraw, (run) => actions.openRun(run));
    const axes = axisChoice(trans, (axis) => {
      this.axis = axis;
      this.draw();
    });
    this.root = h(
      "section",
      { class: "ddl-run ddl-compare", "aria-label": trans.__("Comparison of runs") },
      this.banner,
      this.crowd,
      this.legend.element,
      axes,
      this.charts.element,
      this.empty,
      this.undrawn,
      this.table.element,
      this.cells.element,
    );
    keepKeys(this.root);
    host.append(this.root);
    this.stopListening = onThemeChange(() => this.recolour());
    feed.changed.connect(this.redraw);
    this.recolour();
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
    this.options.feed.changed.disconnect(this.redraw);
    this.stopListening();
    this.comparison.dispose();
    this.charts.destroy();
    this.root.remove();
  }

  /** Draws in the next frame; a hidden page draws nothing. */
  private draw(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  private drawNow(): void {
    this.frame = 0;
    if (!isSeen(this.host)) return;
    this.palette();
    const { comparison } = this;
    const { trans } = this.options;
    const { runs, trouble, left } = comparison;
    const name = comparison.name.bind(comparison);
    say(this.banner, trouble && trans.__("This is how it was: %1", trouble));
    say(
      this.crowd,
      left
        ? trans.__("The first %1 of %2 runs are shown: more lines cannot be told apart.", MOST_RUNS, runs.length + left)
        : "",
    );
    this.legend.draw(name);
    const undrawn = this.charts.draw(runs, this.axis);
    say(this.empty, this.charts.element.childElementCount ? "" : this.why());
    say(this.undrawn, this.without(undrawn));
    const known = runs.filter(({ details }) => details !== null);
    show(this.table.element, known.length > 1);
    const columns = known.map((run) => ({ look: run.look, name: name(run) }));
    const facts = known.map(({ look, details, follower }) => ({ letter: look.letter, details, model: follower.model }));
    this.table.draw(columns, differences(facts, trans, Date.now() / 1000));
    this.cells.draw(runs, name);
  }

  /** Why there are no charts. */
  private why(): string {
    const { trans } = this.options;
    const { runs, trouble } = this.comparison;
    const there = runs.filter(({ problem }) => !problem);
    if (!there.length) return trans.__("None of these runs is there any more.");
    if (!runs.some(({ shown }) => shown)) return trans.__("All runs are switched off.");
    if (there.some(({ follower }) => !follower.model.run)) {
      return trouble ? trans.__("Waiting for Jupyter Server …") : trans.__("Reading the runs …");
    }
    return there.some(({ follower }) => !follower.model.over)
      ? trans.__("The charts begin with the first steps.")
      : trans.__("These runs reported no steps.");
  }

  /** What the charts leave out, in a line. */
  private without({ unplaced, metrics }: Left): string {
    const { trans } = this.options;
    const letters = unplaced.map(({ look }) => look.letter).join(", ");
    const parts: string[] = [];
    if (letters && this.axis === "epoch")
      parts.push(trans.__("Not drawn, as their epochs are not known: %1.", letters));
    else if (letters) parts.push(trans.__("Not drawn, as the times of their steps are not known: %1.", letters));
    if (metrics) parts.push(trans._n("%1 more metric has no chart.", "%1 more metrics have no chart.", metrics));
    return parts.join(" ");
  }

  private palette(): Palette {
    if (!this.colours) {
      this.colours = palette(this.root);
      // Pieces of lines beside names are as the lines in the charts, whichever colours the reader wants.
      this.colours.lines.forEach((colour, i) => {
        this.root.style.setProperty(`--ddl-run-${i}`, colour);
      });
    }
    return this.colours;
  }

  private recolour(): void {
    attribute(this.root, "data-dark", String(isDark()));
    this.colours = null;
    this.charts.recolour();
    this.draw();
  }
}

/** A line where there is something to say. */
function say(element: HTMLElement, words: string): void {
  text(element, words);
  show(element, words !== "");
}
