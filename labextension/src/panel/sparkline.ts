/** A small line chart without axes: the loss over the run. */

import { s, setAttribute } from "../view/dom";

const WIDTH = 64;
const HEIGHT = 16;

export class Sparkline {
  private readonly line = s("polyline");
  readonly element: SVGElement;

  constructor() {
    const size = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT };
    // Hidden from screen readers: the label of the row has the newest loss.
    this.element = s("svg", { class: "ddl-spark", ...size, "aria-hidden": "true" }, this.line);
  }

  draw(values: readonly number[]): void {
    setAttribute(this.line, "points", points(values));
  }
}

/** The points of the polyline; none for a single value. */
export function points(values: readonly number[]): string {
  if (values.length < 2) return "";
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  const x = (i: number) => 1 + (i / (values.length - 1)) * (WIDTH - 2);
  const y = (value: number) => 1 + (1 - (value - low) / span) * (HEIGHT - 2);
  return values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
}
