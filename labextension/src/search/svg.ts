/** How trials are drawn: many trials of one look are one path. */

import type { TrialView } from "../generated";
import { s, setAttribute } from "../view/dom";

/** The looks, from the lowest layer to the highest. */
export const LOOKS = ["out", "pruned", "finished", "training", "best", "picked"] as const;
export type Look = (typeof LOOKS)[number];

/** Which trials stand out: those that the brushes contain, the best ones, and the one that the reader has picked. */
export interface Emphasis {
  isChosen(trial: TrialView): boolean;
  best: ReadonlySet<number>;
  picked: number | null;
}

export function look(trial: TrialView, { isChosen, best, picked }: Emphasis): Look {
  if (trial.number === picked) return "picked";
  if (!isChosen(trial)) return "out";
  if (best.has(trial.number)) return "best";
  if (trial.state === "pruned" || trial.state === "failed") return "pruned";
  return trial.state === "finished" ? "finished" : "training";
}

/** The width of lines, in pixels: thinner where they are so many that they would cover each other. */
const WIDTH = { widest: 1.3, thinnest: 0.25, all: 80 };

/** One path for each look. */
export class Layers {
  readonly element = s("g", { class: "ddl-lines" });
  private readonly paths = new Map<Look, SVGPathElement>();

  constructor() {
    for (const name of LOOKS) {
      const path = s("path", { "data-look": name });
      this.paths.set(name, path);
      this.element.append(path);
    }
  }

  /** Draws the line `path` of each trial. */
  draw(trials: Iterable<TrialView>, emphasis: Emphasis, path: (trial: TrialView) => string): void {
    const drawn = new Map<Look, string[]>(LOOKS.map((name) => [name, []]));
    for (const trial of trials) drawn.get(look(trial, emphasis))?.push(path(trial));
    for (const [name, parts] of drawn) setAttribute(this.paths.get(name) ?? this.element, "d", parts.join(""));
    const count = drawn.get("finished")?.length ?? 0;
    const width = Math.max(WIDTH.thinnest, Math.min(WIDTH.widest, WIDTH.all / count));
    this.element.style.setProperty("--ddl-line-width", `${width}px`);
  }
}

/** A path through points in pixels. A single point is a short stroke. */
export function polyline(points: readonly (readonly [number, number])[]): string {
  const [first] = points;
  if (!first) return "";
  const text = points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
  return points.length > 1 ? `M${text}` : `M${text}h3`;
}
