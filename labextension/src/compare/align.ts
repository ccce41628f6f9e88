/** The lines of a run over a common axis: steps, time since training began, epochs done, or rows trained. Pure. */

import type { SeriesKey } from "../generated";
import { epochKnots, interpolate, type Knots } from "../view/axes";
import type { Line, RunModel } from "../view/model";

export const AXES = ["step", "time", "epoch", "sample"] as const;

export type Axis = (typeof AXES)[number];

/** The charts whose lines are over seconds; those of the metrics are over steps. */
export const RATE = "samples/s";
export const WORKERS = "number of workers";

/** The keys of their lines. Only runs whose workers come and go have the number of them. */
export const OVER_TIME: ReadonlyMap<string, SeriesKey> = new Map([
  [RATE, "rate"],
  [WORKERS, "workers"],
]);

/** Names of the charts of all runs: loss, other metrics, those of the validation, samples/s, number of workers. */
export function chartNames(models: readonly RunModel[]): string[] {
  const keys = models.flatMap((model) => [...model.lines.keys()]);
  const metrics = keys.filter((key) => key.startsWith("metric:")).map((key) => key.slice("metric:".length));
  const order = (name: string) => (name.startsWith("val_") ? 2 : 0) + (/^(val_)?loss$/.test(name) ? 0 : 1);
  const names = [...new Set(metrics)].sort((a, b) => order(a) - order(b));
  return [...names, ...[...OVER_TIME].filter(([, key]) => keys.includes(key)).map(([name]) => name)];
}

/**
 * The line of a run for a chart. Undefined: the run has no such values. Null: it has, but their positions on this axis
 * are unknown.
 */
export function aligned(model: RunModel, name: string, axis: Axis): Line | null | undefined {
  const key = OVER_TIME.get(name);
  if (key) {
    const overTime = model.line(key);
    return overTime && mapped(overTime, fromSeconds(model, axis));
  }
  const line = model.exactLine(name) ?? model.line(`metric:${name}`);
  return line && mapped(line, fromSteps(model, axis));
}

/** Keras' running values behind a line of exact values per epoch; null if there are none. */
export function runningValues(model: RunModel, name: string, axis: Axis): Line | null {
  const line = model.exactLine(name) && model.line(`metric:${name}`);
  return line ? mapped(line, fromSteps(model, axis)) : null;
}

/** Maps an x to the axis; null if its position is unknown. */
type AxisMap = (x: number) => number | null;

function mapped(line: Line, map: AxisMap | null): Line | null {
  if (!map) return null;
  const result: Line = { x: [], y: [] };
  line.x.forEach((x, i) => {
    const position = map(x);
    if (position === null) return;
    result.x.push(position);
    result.y.push(line.y[i] ?? null);
  });
  return result;
}

/** From steps to the axis. */
function fromSteps(model: RunModel, axis: Axis): AxisMap | null {
  if (axis === "step") return (step) => step;
  if (axis === "epoch") {
    const knots = epochKnots(model.line("epoch"), model.progress?.steps ?? null);
    return knots && ((step) => interpolate(knots, step));
  }
  if (axis === "sample") {
    // Each member of an ensemble trains on rows of its own, which are not those of the metrics of rank 0.
    const samples = model.run?.strategy === "ensemble" ? null : knotsOf(model.line("samples"));
    return samples?.y.at(-1) ? (step) => interpolate(samples, step) : null;
  }
  const seconds = knotsOf(model.line("seconds"));
  return seconds && ((step) => Math.max(0, interpolate(seconds, step) - model.trainingBegin));
}

/** From seconds since the run was created to the axis. */
function fromSeconds(model: RunModel, axis: Axis): AxisMap | null {
  if (axis === "time") return (time) => (time < model.trainingBegin ? null : time - model.trainingBegin);
  const seconds = knotsOf(model.line("seconds"));
  const map = fromSteps(model, axis);
  if (!seconds || !map) return null;
  const steps = { x: seconds.y, y: seconds.x };
  const [first = 0, last = 0] = [steps.x[0], steps.x.at(-1)];
  return (time) => (time < first || time > last ? null : map(interpolate(steps, time)));
}

function knotsOf(line: Line | undefined): Knots | null {
  return line?.x.length ? { x: line.x, y: line.y.map((y) => y ?? 0) } : null;
}
