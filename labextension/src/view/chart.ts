/** One chart: a heading with the newest values (or those under the pointer), and a canvas drawn by uPlot. */

import uPlot from "uplot";
import { type Range, type Tick, valueRange } from "./axes";
import { button, h, setAttribute, setNote, setVisible } from "./dom";
import { tick } from "./format";
import type { Line } from "./model";
import { preferences } from "./preferences";
import { type Palette, translucent } from "./theme";

const HEIGHT = 124;
/** Of a chart that the reader has enlarged; view.css has it, too. */
const LARGE_HEIGHT = 320;
/** The weight of what was before in a smoothed line, for each of its points. */
const SMOOTHING = 0.8;
const DASH = [5, 3];
const STEPS = uPlot.paths.stepped?.({ align: 1 });
const MIN_WIDTH = 120;
/** Width of a label of the x axis; half of the last one is to the right of the lines. */
const LABEL = 36;
const AXIS_FONT = "10px system-ui, sans-serif";

/** One line of a chart. */
export interface Trace {
  line: Line;
  /** Index in the palette; -1 is the colour of the text. */
  colour: number;
  /** A value of the line as text for the heading. */
  format(value: number | null): string;
  /** When the heading has the value: while the pointer is over the chart ("hover") or not ("idle"). Default: always. */
  shown?: "always" | "hover" | "idle" | "never";
  /** The newest value for the heading; by default the last value of the line. */
  newest?: number | undefined;
  /** True for the default pattern, else the lengths of strokes and gaps. */
  dash?: boolean | readonly number[];
  thin?: boolean;
  faint?: boolean;
  /** A value holds until the next one. */
  stepped?: boolean;
  /** Fills the area from this line to the next one. */
  filled?: boolean;
}

export interface ChartContent {
  traces: Trace[];
  /** Describes the chart for screen readers. */
  summary: string;
  ticks(from: number, to: number, count: number): Tick[];
  /** The x under the pointer as text. */
  formatX(x: number): string;
  yRange?: Range | undefined;
  /** Of a small chart below another one, whose x axis it shares: the highest y, which is its only tick beside 0. */
  top?: number;
  /** The x range while the reader has not zoomed. */
  xRange: readonly [number, number];
  /** Follows the values under the pointer. */
  remarkAt?(x: number): string;
  /** Follows the values in the heading, e.g. "58 % of peak". */
  remark?: string | undefined;
  /** Tooltip that explains the values. */
  hint?: string | undefined;
}

export class Chart {
  readonly element: HTMLElement;
  private readonly values = h("span", { class: "ddl-values" });
  private readonly canvas = h("div", { class: "ddl-canvas", role: "img" });
  /** Where the pointer is. */
  private readonly at = h("span", { class: "ddl-at ddl-dim", hidden: true });
  private plot: uPlot | null = null;
  /** The style of the lines that `plot` was made for. */
  private style = "";
  private content: ChartContent | null = null;
  private width = 0;
  private zoomed = false;
  private large = false;
  private readonly log = h("input", { type: "checkbox" });
  private readonly smooth = h("input", { type: "checkbox" });
  private readonly tools: HTMLElement;

  /**
   * @param sync name of the group of charts whose pointers move together
   * @param colours the current palette
   */
  constructor(
    heading: HTMLElement,
    private readonly sync: string,
    private readonly colours: () => Palette,
    private readonly height = HEIGHT,
  ) {
    const head = h("div", { class: "ddl-heading" }, heading, this.values);
    const enlarge = button("⤢", () => this.enlarge(enlarge), {
      class: "ddl-enlarge",
      title: "Enlarge: also with a logarithmic scale, and smoothed",
      "aria-label": "Enlarge the chart",
      "aria-pressed": "false",
    });
    const labels = [h("label", {}, this.log, " log scale"), h("label", {}, this.smooth, " smoothed")];
    this.tools = h("div", { class: "ddl-chart-tools ddl-dim", hidden: true }, ...labels);
    for (const input of [this.log, this.smooth]) input.addEventListener("change", () => this.drawAnew());
    this.element = h("section", { class: "ddl-chart" }, head, enlarge, this.tools, this.canvas, this.at);
  }

  /** Enlarges the chart, or makes it as small as the others again, without what the large one has. */
  private enlarge(toggle: HTMLButtonElement): void {
    this.large = !this.large;
    if (!this.large) this.log.checked = this.smooth.checked = false;
    setAttribute(toggle, "aria-pressed", String(this.large));
    setAttribute(this.element, "data-large", this.large);
    setVisible(this.tools, this.large);
    this.width = Math.floor(this.canvas.clientWidth);
    this.drawAnew();
  }

  private drawAnew(): void {
    this.plot?.destroy();
    this.plot = null;
    if (this.content) this.draw(this.content);
  }

  private get data(): uPlot.AlignedData {
    const traces = this.content?.traces ?? [];
    const smooth = (trace: Trace) => (trace.stepped ? trace : { ...trace, line: smoothed(trace.line) });
    const shown = this.smooth.checked ? traces.map(smooth) : traces;
    return joined(this.log.checked ? shown.map((trace) => ({ ...trace, line: positive(trace.line) })) : shown);
  }

  private get pixels(): number {
    return this.large ? LARGE_HEIGHT : this.height;
  }

  private yRange(low: number, high: number): [number, number] {
    if (!this.log.checked) return valueRange(low, high, this.content?.yRange);
    return low > 0 ? (uPlot.rangeLog(low, high, 10, false) as [number, number]) : [0.1, 1];
  }

  /** Draws the content; null hides the chart. */
  draw(content: ChartContent | null): void {
    this.content = content;
    setVisible(this.element, content !== null);
    if (!content) return;
    this.canvas.setAttribute("aria-label", content.summary);
    const styles = content.traces.map(({ colour, dash, thin, faint, filled }) => [colour, dash, thin, faint, filled]);
    const style = JSON.stringify(styles);
    if (style !== this.style || !this.plot) {
      this.plot?.destroy();
      this.zoomed = false;
      this.plot = this.width ? this.createPlot(content) : null;
      this.style = style;
    } else {
      // New data must not reset the zoom.
      this.plot.setData(this.data, !this.zoomed);
      if (this.zoomed) this.plot.redraw();
    }
    this.drawHeading();
  }

  /** Fits the canvas to the width of the chart. */
  resize(): void {
    const width = Math.max(MIN_WIDTH, Math.floor(this.canvas.clientWidth));
    if (width === this.width || !this.canvas.clientWidth) return;
    this.width = width;
    if (this.plot) this.plot.setSize({ width, height: this.pixels });
    else if (this.content) this.draw(this.content);
  }

  /** Redraws after the palette has changed. */
  recolour(): void {
    this.plot?.redraw(false);
    this.drawHeading();
  }

  destroy(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  private createPlot(content: ChartContent): uPlot {
    const stroke = (trace: Trace) => () => colourOf(this.colours(), trace.colour);
    const dim = () => this.colours().dim;
    const small = content.top !== undefined;
    const grid = { stroke: () => this.colours().grid, width: 1 };
    const options: uPlot.Options = {
      width: this.width,
      height: this.pixels,
      padding: [8, LABEL / 2, small ? 8 : 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: this.sync, scales: ["x", null] },
        y: false,
        points: { size: 6 },
        drag: { x: true, y: false },
      },
      scales: {
        x: { time: false, range: (plot, low, high) => this.xRange(plot, low, high) },
        y: { distr: this.log.checked ? 3 : 1, range: (_plot, low, high) => this.yRange(low, high) },
      },
      series: [
        {},
        ...content.traces.map((trace) => ({
          stroke: stroke(trace),
          width: trace.thin || trace.faint ? 1 : 1.6,
          alpha: trace.faint ? 0.4 : 1,
          spanGaps: true,
          ...(trace.stepped && STEPS ? { paths: STEPS } : {}),
          points: { show: (_plot: uPlot, i: number) => (this.content?.traces[i - 1]?.line.x.length ?? 0) < 2, size: 5 },
          ...(trace.dash ? { dash: trace.dash === true ? DASH : [...trace.dash] } : {}),
        })),
      ],
      bands: content.traces.flatMap((trace, i) =>
        trace.filled ? [{ series: [i + 2, i + 1], fill: () => translucent(stroke(trace)()) }] : [],
      ),
      axes: [
        {
          stroke: dim,
          font: AXIS_FONT,
          size: 22,
          gap: 4,
          grid: { show: false },
          ticks: { ...grid, size: 3 },
          show: !small,
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
          ...(small ? { splits: () => [0, this.content?.top ?? 0] } : {}),
          values: (_plot, splits) => splits.map((value) => (value === null ? "" : tick(value))),
        },
      ],
      hooks: {
        setCursor: [() => this.drawHeading()],
        setScale: [(plot, key) => key === "x" && this.updateZoomed(plot)],
      },
    };
    return new uPlot(options, this.data, this.canvas);
  }

  /** The x range of the content, or the part that the reader has zoomed into. */
  private xRange(plot: uPlot, low: number, high: number): [number, number] {
    const xs = plot.data[0];
    // Around a single point uPlot asks for a range of its own choice.
    const whole = xs.length < 2 || (low === xs[0] && high === xs[xs.length - 1]);
    const [from, to] = this.content?.xRange ?? [low, high];
    return whole ? [from, to] : [low, high];
  }

  private updateZoomed(plot: uPlot): void {
    const [from, to] = this.content?.xRange ?? [];
    this.zoomed = plot.data[0].length > 1 && (plot.scales.x?.min !== from || plot.scales.x?.max !== to);
  }

  private ticks(plot: uPlot): Tick[] {
    const { min, max } = plot.scales.x ?? {};
    if (min == null || max == null || !this.content) return [];
    return this.content.ticks(min, max, Math.max(2, Math.floor(plot.bbox.width / devicePixelRatio / (LABEL + 2))));
  }

  /** The values in the heading: those under the pointer, else the newest. */
  private drawHeading(): void {
    const content = this.content;
    if (!content) return;
    const index = this.plot?.cursor.idx;
    const x = index == null ? null : (this.plot?.data[0][index] ?? null);
    const colours = this.colours();
    const parts: Node[] = [];
    const left = x === null ? "hover" : "idle";
    for (const trace of content.traces) {
      const value = x === null ? (trace.newest ?? lastValue(trace.line)) : valueAt(trace.line, x);
      if (trace.shown === left || trace.shown === "never" || (x !== null && value === null)) continue;
      const part = h("span", {}, trace.format(value));
      part.style.color = colourOf(colours, trace.colour);
      parts.push(part);
    }
    const remark = x === null ? content.remark : content.remarkAt?.(x);
    if (remark) parts.push(h("span", { class: "ddl-dim" }, remark));
    setNote(this.at, x === null ? "" : content.formatX(x));
    this.values.replaceChildren(...parts);
    setAttribute(this.values, "title", content.hint);
  }
}

function colourOf(colours: Palette, index: number): string {
  return index < 0 ? colours.text : (colours.lines[index % colours.lines.length] ?? colours.text);
}

/** The traces over one common x, as uPlot wants them; a line connects its points across missing values. */
export function joined(traces: readonly Trace[]): uPlot.AlignedData {
  const { maxPoints } = preferences();
  const tables = traces.map(({ line }): uPlot.AlignedData => {
    const { x, y } = thinned(line, maxPoints);
    return [x, y];
  });
  const [first, second] = tables;
  if (!first) return [[]];
  return second ? uPlot.join(tables) : first;
}

/** Every n-th point, such that at most `limit` are left; the last point is always kept. */
export function thinned(line: Line, limit: number): Line {
  const every = Math.ceil(line.x.length / limit);
  if (every <= 1) return line;
  const kept = (_: unknown, i: number) => (line.x.length - 1 - i) % every === 0;
  return { x: line.x.filter(kept), y: line.y.filter(kept) };
}

/** A line whose points follow the mean of those before, which weigh less the older they are. */
export function smoothed({ x, y }: Line): Line {
  let [sum, weight] = [0, 0];
  const values = y.map((value) => {
    if (value === null) return null;
    [sum, weight] = [SMOOTHING * sum + value, SMOOTHING * weight + 1];
    return sum / weight;
  });
  return { x, y: values };
}

/** A line without the values that have no logarithm. */
export function positive({ x, y }: Line): Line {
  return { x, y: y.map((value) => (value !== null && value > 0 ? value : null)) };
}

function lastValue(line: Line): number | null {
  return line.y.findLast((y) => y !== null) ?? null;
}

/** The last known value at or before x. */
export function valueAt(line: Line, x: number): number | null {
  return line.y[line.x.findLastIndex((at, i) => at <= x && line.y[i] !== null)] ?? null;
}
