/** A chart a metric, each with the lines of all runs over one axis. */

import type { Translation } from "../translation";
import { countTicks, timeTicks } from "../view/axes";
import { Chart, type ChartContent, type Trace } from "../view/chart";
import { h } from "../view/dom";
import { duration, number } from "../view/format";
import type { Line } from "../view/model";
import type { Palette } from "../view/theme";
import { type Axis, aligned, chartNames, RATE, running } from "./align";
import type { Compared } from "./feed";

/** So many metrics get a chart. */
const MOST_METRICS = 24;

/** With more lines, the running values behind them hide what there is to see. */
const MOST_WITH_RUNNING = 3;

const HEIGHT = 200;

let pages = 0;

/** What is not drawn: runs whose place on the axis is not known, and how many metrics are too many. */
export interface Left {
  unplaced: Compared[];
  metrics: number;
}

/** A chart before it is drawn. */
interface Plan {
  name: string;
  lines: [Compared, Line][];
}

export class OverlaidCharts {
  readonly element = h("div", { class: "ddl-charts" });
  private readonly charts = new Map<string, Chart>();
  private readonly observer = new ResizeObserver(() => this.resize());
  private readonly sync = `ddl-compare-${pages++}`;
  private axis: Axis | null = null;

  constructor(
    private readonly trans: Translation,
    private readonly colours: () => Palette,
  ) {
    this.observer.observe(this.element);
  }

  /** Draws the runs that are switched on; returns what is left out. */
  draw(runs: readonly Compared[], axis: Axis): Left {
    // Who has zoomed in looked at a part of another axis.
    if (axis !== this.axis) this.clear();
    this.axis = axis;
    const shown = runs.filter((run) => run.shown);
    const all = chartNames(shown.map(({ follower }) => follower.model));
    const names = all.filter((name, i) => i < MOST_METRICS || name === RATE);
    const unplaced = new Set<Compared>();
    const plans = names.map((name): Plan => {
      const lines = shown.map((run) => ({ run, line: aligned(run.follower.model, name, axis) }));
      for (const { run, line } of lines) if (line === null) unplaced.add(run);
      return {
        name,
        lines: lines.flatMap(({ run, line }) => (line?.x.length ? [[run, line] as [Compared, Line]] : [])),
      };
    });
    const drawn = plans.filter(({ lines }) => lines.length);
    this.arrange(drawn.map(({ name }) => name));
    const most = Math.max(0, ...drawn.flatMap(({ lines }) => lines.map(([, { x }]) => x.at(-1) ?? 0)));
    for (const plan of drawn) this.charts.get(plan.name)?.draw(this.content(plan, axis, most || 1));
    this.resize();
    return { unplaced: [...unplaced], metrics: all.length - names.length };
  }

  recolour(): void {
    for (const chart of this.charts.values()) chart.recolour();
  }

  destroy(): void {
    this.observer.disconnect();
    this.clear();
  }

  /** Makes charts of these names, in this order, out of those that are there. */
  private arrange(names: readonly string[]): void {
    for (const [name, chart] of this.charts) {
      if (names.includes(name)) continue;
      chart.destroy();
      this.charts.delete(name);
    }
    for (const name of names) {
      if (!this.charts.has(name)) {
        const heading = name === RATE ? this.trans.__("samples/s") : name;
        this.charts.set(name, new Chart(h("h3", {}, heading), this.sync, this.colours, HEIGHT));
      }
    }
    const elements = names.map((name) => (this.charts.get(name) as Chart).element);
    const there = [...this.element.children];
    if (elements.length !== there.length || elements.some((element, i) => element !== there[i])) {
      this.element.replaceChildren(...elements);
    }
  }

  private content({ name, lines }: Plan, axis: Axis, most: number): ChartContent {
    const { trans } = this;
    const behind = lines.length > MOST_WITH_RUNNING ? () => null : running;
    const traces = lines.flatMap(([{ look, follower }, line]): Trace[] => {
      const says = (value: number | null) => `${look.letter} ${number(value)}`;
      const trace: Trace = { line, colour: look.colour, dash: look.dash, says };
      const faint = behind(follower.model, name, axis);
      if (!faint) return [trace];
      return [
        { line: faint, colour: look.colour, faint: true, says, when: "pointed" },
        { ...trace, when: "resting" },
      ];
    });
    const words: Record<Axis, (x: number) => string> = {
      step: (x) => trans.__("step %1", number(Math.round(x))),
      time: (x) => trans.__("at %1", duration(x)),
      epoch: (x) => trans.__("epoch %1", x.toFixed(1)),
    };
    const over = { step: trans.__("steps"), time: trans.__("time"), epoch: trans.__("epochs") }[axis];
    const resting = traces.filter(({ when }) => when !== "pointed");
    const newest = resting.map((trace) => trace.says(trace.line.y.findLast((y) => y !== null) ?? null));
    return {
      traces,
      summary: trans.__("%1 over %2; last values: %3", name, over, newest.join(", ")),
      ticks: (from, to, room) => {
        if (axis === "time") return timeTicks(from, to, room);
        return countTicks(axis === "step" ? trans.__("step") : trans.__("epoch"), from, to, room);
      },
      where: words[axis],
      span: [0, most],
      ...(name === RATE && { range: "zero" as const }),
    };
  }

  private clear(): void {
    for (const chart of this.charts.values()) chart.destroy();
    this.charts.clear();
    this.element.replaceChildren();
  }

  private resize(): void {
    for (const chart of this.charts.values()) chart.resize();
  }
}
