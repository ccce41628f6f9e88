/** One chart per metric, each with the lines of all runs over one axis. */

import type { Translation } from "../translation";
import { countTicks, timeTicks } from "../view/axes";
import { Chart, type ChartContent, type Trace } from "../view/chart";
import { ChartGroup } from "../view/chartgroup";
import { h, setChildren } from "../view/dom";
import { duration, number } from "../view/format";
import type { Line } from "../view/model";
import type { Palette } from "../view/theme";
import { type Axis, aligned, chartNames, OVER_TIME, RATE, runningValues, WORKERS } from "./align";
import type { ComparedRun } from "./comparison";

/** Number of metrics that get a chart. */
const MAX_METRICS = 24;

/** With more lines, the running values behind them would clutter the chart. */
const MAX_LINES_WITH_RUNNING_VALUES = 3;

const HEIGHT = 200;

let pages = 0;

/** What is not drawn: runs whose positions on the axis are unknown, and a number of metrics. */
export interface Omitted {
  runs: ComparedRun[];
  metrics: number;
}

interface Plan {
  name: string;
  lines: [ComparedRun, Line][];
}

export class OverlaidCharts extends ChartGroup {
  protected readonly charts = new Map<string, Chart>();
  private readonly sync = `ddl-compare-${pages++}`;
  private axis: Axis | null = null;

  constructor(
    private readonly trans: Translation,
    private readonly colours: () => Palette,
  ) {
    super();
  }

  /** Draws the runs that are shown; returns what is left out. */
  draw(runs: readonly ComparedRun[], axis: Axis): Omitted {
    // A zoomed x range makes no sense on another axis.
    if (axis !== this.axis) this.setCharts([]);
    this.axis = axis;
    const shown = runs.filter((run) => run.shown);
    const all = chartNames(shown.map(({ follower }) => follower.model));
    const names = all.filter((name, i) => i < MAX_METRICS || OVER_TIME.has(name));
    const unaligned = new Set<ComparedRun>();
    const plans = names.map((name): Plan => {
      const lines: Plan["lines"] = [];
      for (const run of shown) {
        const line = aligned(run.follower.model, name, axis);
        if (line === null) unaligned.add(run);
        if (line?.x.length) lines.push([run, line]);
      }
      return { name, lines };
    });
    const drawn = plans.filter(({ lines }) => lines.length);
    const end = Math.max(0, ...drawn.flatMap(({ lines }) => lines.map(([, { x }]) => x.at(-1) ?? 0)));
    const charts = this.setCharts(drawn.map(({ name }) => name));
    drawn.forEach((plan, i) => {
      charts[i]?.draw(this.content(plan, axis, end || 1));
    });
    this.resize();
    return { runs: [...unaligned], metrics: all.length - names.length };
  }

  /** Puts charts with these names into the document, in this order; existing ones are reused. */
  private setCharts(names: readonly string[]): Chart[] {
    for (const [name, chart] of this.charts) {
      if (names.includes(name)) continue;
      chart.destroy();
      this.charts.delete(name);
    }
    const charts = names.map((name) => this.chart(name));
    const elements = charts.map(({ element }) => element);
    setChildren(this.element, elements);
    return charts;
  }

  private chart(name: string): Chart {
    const known = this.charts.get(name);
    if (known) return known;
    const headings: Record<string, string> = {
      [RATE]: this.trans.__("samples/s"),
      [WORKERS]: this.trans.__("number of workers"),
    };
    const heading = headings[name] ?? name;
    const chart = new Chart(h("h3", {}, heading), this.sync, this.colours, HEIGHT);
    this.charts.set(name, chart);
    return chart;
  }

  private content({ name, lines }: Plan, axis: Axis, end: number): ChartContent {
    const { trans } = this;
    const behind = lines.length > MAX_LINES_WITH_RUNNING_VALUES ? () => null : runningValues;
    const traces = lines.flatMap(([{ style, follower }, line]): Trace[] => {
      const { letter, colour, dash } = style;
      const format = (value: number | null) => `${letter} ${number(value)}`;
      const newest = name === RATE ? (follower.model.progress?.rate ?? undefined) : undefined; // as in the run's own view
      const trace: Trace = { line, colour, dash, format, newest, stepped: name === WORKERS };
      const faint = behind(follower.model, name, axis);
      if (!faint) return [trace];
      return [
        { line: faint, colour, faint: true, format, shown: "hover" },
        { ...trace, shown: "idle" },
      ];
    });
    const formatX: Record<Axis, (x: number) => string> = {
      step: (x) => trans.__("step %1", number(Math.round(x))),
      sample: (x) => trans.__("%1 samples", number(Math.round(x))),
      time: (x) => trans.__("at %1", duration(x)),
      epoch: (x) => trans.__("epoch %1", x.toFixed(1)),
    };
    const axisTitle = {
      step: trans.__("steps"),
      sample: trans.__("samples"),
      time: trans.__("time"),
      epoch: trans.__("epochs"),
    }[axis];
    const idle = traces.filter(({ shown }) => shown !== "hover");
    const newest = idle.map((trace) => trace.format(trace.newest ?? trace.line.y.findLast((y) => y !== null) ?? null));
    return {
      traces,
      summary: trans.__("%1 over %2; last values: %3", name, axisTitle, newest.join(", ")),
      ticks: (from, to, count) => {
        if (axis === "time") return timeTicks(from, to, count);
        const units = { step: trans.__("step"), sample: trans.__("sample"), epoch: trans.__("epoch") };
        return countTicks(units[axis], from, to, count);
      },
      formatX: formatX[axis],
      xRange: [0, end],
      ...(OVER_TIME.has(name) && { yRange: "zero" }),
    };
  }
}
