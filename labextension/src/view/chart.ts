/** One chart: a heading with the newest values (or those under the pointer), and a canvas drawn by uPlot. */

import uPlot from "uplot";
import { type Range, type Tick, valueRange } from "./axes";
import { attribute, h, show } from "./dom";
import { tick } from "./format";
import type { Line } from "./model";
import { preferences } from "./preferences";
import type { Palette } from "./theme";

const HEIGHT = 124;
const DASH = [5, 3];
const MIN_WIDTH = 120;
/** Room for a label of the x axis: half of the last one stands beyond the lines. */
const LABEL = 36;
const AXIS_FONT = "10px system-ui, sans-serif";

/** A line as a chart draws it; `colour` counts in the palette, -1 is the text's colour. */
export interface Trace {
  line: Line;
  colour: number;
  /** The number's words in the heading, `value` being the newest one or that under the pointer. */
  says(value: number | null): string;
  /** When it says them; always if not said. */
  when?: "always" | "pointed" | "resting" | "never";
  /** What the heading says as long as the pointer is elsewhere, in place of the line's last value. */
  newest?: number | undefined;
  /** True for the usual pattern; else lengths of strokes and gaps. */
  dash?: boolean | readonly number[];
  thin?: boolean;
  faint?: boolean;
}

export interface ChartContent {
  traces: Trace[];
  /** For those who do not see the canvas. */
  summary: string;
  ticks(from: number, to: number, most: number): Tick[];
  /** Words for an x under the pointer. */
  where(x: number): string;
  range?: Range | undefined;
  /** The x range as long as nobody zooms. */
  span: readonly [number, number];
  /** After the numbers, e.g. "58 % of peak". */
  remark?: string | undefined;
  /** What the numbers are, for who wonders. */
  hint?: string | undefined;
}

export class Chart {
  readonly element: HTMLElement;
  private readonly values = h("span", { class: "ddl-values" });
  private readonly canvas = h("div", { class: "ddl-canvas", role: "img" });
  private plot: uPlot | null = null;
  private drawn = "";
  private content: ChartContent | null = null;
  private width = 0;
  private zoomed = false;

  /** `sync` names the charts whose pointers move together. */
  constructor(
    heading: HTMLElement,
    private readonly sync: string,
    private readonly colours: () => Palette,
    private readonly height = HEIGHT,
  ) {
    this.element = h(
      "section",
      { class: "ddl-chart" },
      h("div", { class: "ddl-heading" }, heading, this.values),
      this.canvas,
    );
  }

  /** Draws; null hides the chart. */
  draw(content: ChartContent | null): void {
    this.content = content;
    show(this.element, content !== null);
    if (!content) return;
    this.canvas.setAttribute("aria-label", content.summary);
    const shape = JSON.stringify(content.traces.map(({ colour, dash, thin, faint }) => [colour, dash, thin, faint]));
    if (shape !== this.drawn || !this.plot) {
      this.plot?.destroy();
      this.zoomed = false;
      this.plot = this.width ? this.make(content) : null;
      this.drawn = shape;
    } else {
      // Whoever has zoomed in is looking at something.
      this.plot.setData(joined(content.traces), !this.zoomed);
      if (this.zoomed) this.plot.redraw();
    }
    this.head();
  }

  /** Fits the canvas to the room that the chart has. */
  resize(): void {
    const width = Math.max(MIN_WIDTH, Math.floor(this.canvas.clientWidth));
    if (width === this.width || !this.canvas.clientWidth) return;
    this.width = width;
    if (this.plot) this.plot.setSize({ width, height: this.height });
    else if (this.content) this.draw(this.content);
  }

  /** Draws with new colours. */
  recolour(): void {
    this.plot?.redraw(false);
    this.head();
  }

  destroy(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  private make(content: ChartContent): uPlot {
    const stroke = (trace: Trace) => () => colourOf(this.colours(), trace.colour);
    const dim = () => this.colours().dim;
    const grid = { stroke: () => this.colours().grid, width: 1 };
    const options: uPlot.Options = {
      width: this.width,
      height: this.height,
      padding: [8, LABEL / 2, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: this.sync, scales: ["x", null] },
        y: false,
        points: { size: 6 },
        drag: { x: true, y: false },
      },
      scales: {
        x: { time: false, range: (plot, low, high) => this.span(plot, low, high) },
        y: { range: (_plot, low, high) => valueRange(low, high, this.content?.range) },
      },
      series: [
        {},
        ...content.traces.map((trace) => ({
          stroke: stroke(trace),
          width: trace.thin || trace.faint ? 1 : 1.6,
          alpha: trace.faint ? 0.4 : 1,
          spanGaps: true,
          points: { show: (_plot: uPlot, i: number) => (this.content?.traces[i - 1]?.line.x.length ?? 0) < 2, size: 5 },
          ...(trace.dash ? { dash: trace.dash === true ? DASH : [...trace.dash] } : {}),
        })),
      ],
      axes: [
        {
          stroke: dim,
          font: AXIS_FONT,
          size: 22,
          gap: 4,
          grid: { show: false },
          ticks: { ...grid, size: 3 },
          splits: (plot) => this.ticks(plot).map(({ at }) => at),
          values: (plot) => this.ticks(plot).map(({ label }) => label),
        },
        {
          stroke: dim,
          font: AXIS_FONT,
          size: 38,
          gap: 4,
          space: 32,
          grid,
          ticks: { show: false },
          values: (_plot, splits) => splits.map(tick),
        },
      ],
      hooks: { setCursor: [() => this.head()], setScale: [(plot, key) => key === "x" && this.noteZoom(plot)] },
    };
    return new uPlot(options, joined(content.traces), this.canvas);
  }

  /** All there is, unless a part of it was asked for. */
  private span(plot: uPlot, low: number, high: number): [number, number] {
    const xs = plot.data[0];
    // Around a single point uPlot asks for a range of its own making, which nobody chose.
    const all = xs.length < 2 || (low === xs[0] && high === xs[xs.length - 1]);
    const [from, to] = this.content?.span ?? [low, high];
    return all ? [from, to] : [low, high];
  }

  private noteZoom(plot: uPlot): void {
    const [from, to] = this.content?.span ?? [];
    this.zoomed = plot.data[0].length > 1 && (plot.scales.x?.min !== from || plot.scales.x?.max !== to);
  }

  private ticks(plot: uPlot): Tick[] {
    const { min, max } = plot.scales.x ?? {};
    if (min == null || max == null || !this.content) return [];
    return this.content.ticks(min, max, Math.max(2, Math.floor(plot.bbox.width / devicePixelRatio / (LABEL + 2))));
  }

  /** The numbers beside the heading: under the pointer, else the newest. */
  private head(): void {
    const content = this.content;
    if (!content) return;
    const index = this.plot?.cursor.idx;
    const x = index == null ? null : (this.plot?.data[0][index] ?? null);
    const colours = this.colours();
    const parts: Node[] = [];
    const silent = x === null ? "pointed" : "resting";
    for (const trace of content.traces) {
      const value = x === null ? (trace.newest ?? last(trace.line)) : valueAt(trace.line, x);
      if (trace.when === silent || trace.when === "never" || (x !== null && value === null)) continue;
      const words = trace.says(value);
      const part = h("span", {}, words);
      part.style.color = colourOf(colours, trace.colour);
      parts.push(part);
    }
    const remark = x === null ? content.remark : content.where(x);
    if (remark) parts.push(h("span", { class: "ddl-dim" }, remark));
    this.values.replaceChildren(...parts);
    attribute(this.values, "title", content.hint);
  }
}

function colourOf(colours: Palette, index: number): string {
  return index < 0 ? colours.text : (colours.lines[index % colours.lines.length] ?? colours.text);
}

/** The traces over one common x, as uPlot wants them; what a trace has no point for is skipped by its line. */
export function joined(traces: readonly Trace[]): uPlot.AlignedData {
  const { maxPoints } = preferences();
  const tables = traces.map(({ line: all }) => {
    const line = thinned(all, maxPoints);
    return [line.x, line.y] as uPlot.AlignedData;
  });
  if (!tables.length) return [[]];
  return tables.length === 1 ? (tables[0] as uPlot.AlignedData) : uPlot.join(tables);
}

/** Every so many-th point, so that there are at most `most`; the last is among them. */
export function thinned(line: Line, most: number): Line {
  const every = Math.ceil(line.x.length / most);
  if (every <= 1) return line;
  const stays = (_: unknown, i: number) => (line.x.length - 1 - i) % every === 0;
  return { x: line.x.filter(stays), y: line.y.filter(stays) };
}

function last(line: Line): number | null {
  return line.y.findLast((y) => y !== null) ?? null;
}

/** The value at or before x. */
export function valueAt(line: Line, x: number): number | null {
  for (let i = line.x.length - 1; i >= 0; i--) {
    if ((line.x[i] as number) <= x && line.y[i] !== null) return line.y[i] as number;
  }
  return null;
}
