/** The lines of a run over a common axis: steps, time since its training began, or epochs done. Pure. */

import { between, epochKnots, type Knots } from "../view/axes";
import type { Line, RunModel } from "../view/model";

export const AXES = ["step", "time", "epoch"] as const;

export type Axis = (typeof AXES)[number];

/** The chart of samples/s: over seconds where a metric is over steps. */
export const RATE = "samples/s";

/** Names of the charts that runs have between them: loss first, then what is trained on, validation, samples/s. */
export function chartNames(models: readonly RunModel[]): string[] {
  const all = models.flatMap((model) => [...model.lines.keys()]);
  const metrics = all.filter((key) => key.startsWith("metric:")).map((key) => key.slice("metric:".length));
  const rank = (name: string) => (name.startsWith("val_") ? 2 : 0) + (/^(val_)?loss$/.test(name) ? 0 : 1);
  const names = [...new Set(metrics)].sort((a, b) => rank(a) - rank(b));
  return all.includes("rate") ? [...names, RATE] : names;
}

/**
 * A chart's line of a run. Undefined: the run has no such values; null: it has, and where they are on this axis is not
 * known.
 */
export function aligned(model: RunModel, name: string, axis: Axis): Line | null | undefined {
  if (name === RATE) {
    const rate = model.line("rate");
    return rate && placed(rate, timePlaces(model, axis));
  }
  const line = whole(model, name) ? model.line(`epochs:${name}`) : model.line(`metric:${name}`);
  return line && placed(line, stepPlaces(model, axis));
}

/** The running values behind a line of exact ones; null where there are none. */
export function running(model: RunModel, name: string, axis: Axis): Line | null {
  const line = whole(model, name) ? model.line(`metric:${name}`) : undefined;
  return line ? placed(line, stepPlaces(model, axis)) : null;
}

/** Keras' running values begin anew in each epoch: once there are epochs to compare, their exact values are the line. */
function whole(model: RunModel, name: string): boolean {
  return (model.line(`epochs:${name}`)?.x.length ?? 0) > 1;
}

/** What becomes of an x; null where it is not known. */
type Places = (x: number) => number | null;

function placed(line: Line, places: Places | null): Line | null {
  if (!places) return null;
  const found: Line = { x: [], y: [] };
  line.x.forEach((x, i) => {
    const at = places(x);
    if (at === null) return;
    found.x.push(at);
    found.y.push(line.y[i] ?? null);
  });
  return found;
}

/** From steps to the axis. */
function stepPlaces(model: RunModel, axis: Axis): Places | null {
  if (axis === "step") return (step) => step;
  if (axis === "epoch") return epochs(model);
  const seconds = known(model.line("seconds"));
  const begun = trainingBegan(model);
  return seconds && ((step) => Math.max(0, between(seconds, step) - begun));
}

/** From seconds since the run was created to the axis. */
function timePlaces(model: RunModel, axis: Axis): Places | null {
  const begun = trainingBegan(model);
  if (axis === "time") return (time) => (time < begun ? null : time - begun);
  const seconds = known(model.line("seconds"));
  const places = stepPlaces(model, axis);
  if (!seconds || !places) return null;
  const steps = { x: seconds.y, y: seconds.x };
  const [first, last] = [steps.x[0] as number, steps.x.at(-1) as number];
  return (time) => (time < first || time > last ? null : places(between(steps, time)));
}

/** Seconds from its creation to its first step: what a run waited for is no part of its training. */
function trainingBegan(model: RunModel): number {
  const { created, started } = model.state ?? {};
  return created != null && started != null ? Math.max(0, started - created) : 0;
}

function epochs(model: RunModel): Places | null {
  const knots = epochKnots(model.line("epoch"), model.progress?.steps ?? null);
  return knots && ((step) => between(knots, step));
}

function known(line: Line | undefined): Knots | null {
  return line?.x.length ? { x: line.x, y: line.y.map((y) => y ?? 0) } : null;
}
