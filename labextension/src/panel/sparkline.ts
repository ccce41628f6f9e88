/** A line of a few points without axes: how the loss went. */

import { attribute } from "../view/dom";

const WIDTH = 64;
const HEIGHT = 16;
const SVG = "http://www.w3.org/2000/svg";

export class Sparkline {
  readonly element = document.createElementNS(SVG, "svg");
  private readonly line = document.createElementNS(SVG, "polyline");

  constructor() {
    // What it shows is in the row's words: the loss, and that it goes down is for the run's own page.
    for (const [name, value] of Object.entries({
      class: "ddl-spark",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      width: WIDTH,
      height: HEIGHT,
      "aria-hidden": "true",
    })) {
      attribute(this.element, name, value);
    }
    this.element.append(this.line);
  }

  draw(values: readonly number[]): void {
    attribute(this.line, "points", points(values));
  }
}

/** The points of the polyline; a single value is no line. */
export function points(values: readonly number[]): string {
  if (values.length < 2) return "";
  const least = Math.min(...values);
  const span = Math.max(...values) - least || 1;
  const x = (i: number) => 1 + (i / (values.length - 1)) * (WIDTH - 2);
  const y = (value: number) => 1 + (1 - (value - least) / span) * (HEIGHT - 2);
  return values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
}
