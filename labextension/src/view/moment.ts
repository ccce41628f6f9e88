/** Where the pointer is on a chart, as text: the epoch and the time, whichever of them the axis has. Pure. */

import { epochAt, interpolate, type Knots } from "./axes";
import { duration, number } from "./format";
import type { RunModel } from "./model";

/** "epoch 2.3 · at 0:12", without what is not known. */
export function atStep(model: RunModel, step: number): string {
  const seconds = secondsOfSteps(model);
  return seconds ? `${epoch(model, step)} · at ${duration(interpolate(seconds, step))}` : epoch(model, step);
}

/** "at 0:12 · epoch 2.3", without the epoch before the first step and behind the last one. `time`: since its creation. */
export function atTime(model: RunModel, time: number): string {
  const seconds = secondsOfSteps(model);
  const at = `at ${duration(time)}`;
  if (!seconds || time < (seconds.y[0] ?? 0) || time > (seconds.y.at(-1) ?? 0)) return at;
  return `${at} · ${epoch(model, interpolate({ x: seconds.y, y: seconds.x }, time))}`;
}

/** "epoch 2.3", or the step where epochs are unknown. */
function epoch(model: RunModel, step: number): string {
  const done = epochAt(model.line("epoch"), model.progress?.steps ?? null, step);
  return done === null ? `step ${number(Math.round(step))}` : `epoch ${done.toFixed(1)}`;
}

/** Steps, and the seconds since the run was created at them; null before there are two. */
function secondsOfSteps(model: RunModel): Knots | null {
  const line = model.line("seconds");
  return line && line.x.length > 1 ? { x: line.x, y: line.y.map((y) => y ?? 0) } : null;
}
