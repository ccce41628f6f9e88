/** The objective of each trial over its epochs. The trial under the pointer stands out. */

import type { TrialView } from "../generated";
import { countTicks, multiples, nice, valueRange } from "../view/axes";
import { h, s, setAttribute, setAttributes, setText } from "../view/dom";
import { number, tick } from "../view/format";
import type { SearchModel } from "./model";
import { range } from "./scales";
import { type Emphasis, Layers, polyline } from "./svg";

const HEIGHT = 168;
const MARGIN = { top: 8, right: 10, bottom: 20, left: 38 };
const DEFAULT_WIDTH = 380;
/** How far the pointer may be from a curve that it points at, in pixels. */
const REACH = 24;
const Y_TICKS = 4;

let charts = 0;

export class Curves {
  readonly element: HTMLElement;
  private readonly metric = h("h3");
  private readonly remark = h("span", { class: "ddl-values" });
  private readonly layers = new Layers();
  private readonly axes = s("g", { class: "ddl-axis" });
  private readonly clip = s("rect");
  private readonly svg: SVGSVGElement;
  private model: SearchModel | null = null;
  private x = (epoch: number) => epoch;
  private y = (value: number) => value;

  /** @param onPick the trial under the pointer, or null; `keep`: it was clicked */
  constructor(private readonly onPick: (trial: number | null, keep: boolean) => void) {
    const id = `ddl-curves-${charts++}`;
    this.svg = s(
      "svg",
      { role: "img", height: HEIGHT },
      s("clipPath", { id }, this.clip),
      this.axes,
      s("g", { "clip-path": `url(#${id})` }, this.layers.element),
    );
    this.svg.addEventListener("pointermove", (event) => this.point(event, false));
    this.svg.addEventListener("pointerleave", () => this.onPick(null, false));
    this.svg.addEventListener("click", (event) => this.point(event, true));
    const title = h(
      "div",
      { class: "ddl-title-of" },
      this.metric,
      " ",
      h("span", { class: "ddl-dim" }, "of each trial"),
    );
    const head = h("div", { class: "ddl-heading" }, title, this.remark);
    this.element = h("section", { class: "ddl-chart" }, head, this.svg);
  }

  draw(model: SearchModel, emphasis: Emphasis): void {
    this.model = model;
    const { info, best } = model;
    if (!info) return;
    const trials = [...model.trials.values()];
    const width = this.svg.clientWidth || DEFAULT_WIDTH;
    const [low, high] = valueRange(...curveRange(trials));
    const last = Math.max(2, ...trials.map(({ epochs }) => epochs));
    const [right, bottom] = [width - MARGIN.right, HEIGHT - MARGIN.bottom];
    this.x = (epoch) => MARGIN.left + ((epoch - 1) / (last - 1)) * (right - MARGIN.left);
    this.y = (value) => bottom - ((value - low) / (high - low)) * (bottom - MARGIN.top);
    const box = { x: MARGIN.left, y: MARGIN.top - 4, width: right - MARGIN.left + 4, height: bottom - MARGIN.top + 8 };
    setAttributes(this.clip, box);
    this.drawAxes(low, high, last, right, bottom);
    this.layers.draw(trials, emphasis, (trial) => polyline(this.points(trial)));
    setText(this.metric, info.metric);
    setAttribute(this.metric, "title", info.metric);
    const shown = emphasis.picked === null ? best : (model.trials.get(emphasis.picked) ?? null);
    setText(this.remark, shown ? `${shown === best ? "best " : ""}${number(shown.value)} · trial ${shown.number}` : "");
    this.remark.dataset.best = String(shown === best);
    const summary = best ? `the best is ${number(best.value)}, of trial ${best.number}` : "none has finished";
    setAttribute(this.svg, "aria-label", `${info.metric} of ${trials.length} trials over their epochs; ${summary}`);
  }

  private points(trial: TrialView): [number, number][] {
    return trial.curve.flatMap(([epoch, value]): [number, number][] =>
      value === null ? [] : [[this.x(epoch), this.y(value)]],
    );
  }

  private drawAxes(low: number, high: number, last: number, right: number, bottom: number): void {
    const rows = multiples(nice((high - low) / Y_TICKS), low, high).flatMap((value) => [
      s("line", { x1: MARGIN.left, x2: right, y1: this.y(value), y2: this.y(value) }),
      s("text", { x: MARGIN.left - 5, y: this.y(value) + 3, "text-anchor": "end" }, tick(value)),
    ]);
    const columns = countTicks("epoch", 1, last, 6).map(({ at, label }) =>
      s("text", { x: this.x(at), y: bottom + 15, "text-anchor": at === 1 ? "start" : "middle" }, label),
    );
    this.axes.replaceChildren(...rows, ...columns);
  }

  private point(event: MouseEvent, keep: boolean): void {
    const { left, top } = this.svg.getBoundingClientRect();
    this.onPick(this.nearest(event.clientX - left, event.clientY - top), keep);
  }

  /** The trial whose curve passes nearest to a point, in pixels; null if none is near. */
  private nearest(x: number, y: number): number | null {
    let [found, least]: [number | null, number] = [null, REACH];
    for (const trial of this.model?.trials.values() ?? []) {
      const distance = distanceTo(this.points(trial), x, y);
      if (distance < least) [found, least] = [trial.number, distance];
    }
    return found;
  }
}

/** The vertical distance from a point to a line, at whose ends it is the distance to the end. */
export function distanceTo(points: readonly (readonly [number, number])[], x: number, y: number): number {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return Number.POSITIVE_INFINITY;
  if (x <= first[0]) return Math.hypot(x - first[0], y - first[1]);
  if (x >= last[0]) return Math.hypot(x - last[0], y - last[1]);
  const after = points.findIndex(([at]) => at >= x);
  const [[x0, y0], [x1, y1]] = [points[after - 1] ?? first, points[after] ?? last];
  return Math.abs(y - (y0 + ((y1 - y0) * (x - x0)) / (x1 - x0 || 1)));
}

/** The range of all curves but those of trials that were pruned or have failed, which may be far off. */
function curveRange(trials: readonly TrialView[]): [number, number] {
  const good = trials.filter(({ state }) => state !== "pruned" && state !== "failed");
  const shown = good.some(({ curve }) => curve.length) ? good : trials;
  const values = shown.flatMap(({ curve }) => curve.map(([, value]) => value)).filter((value) => value !== null);
  return values.length ? [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))] : range([]);
}
