/** A run that has ended, as it was at a moment of it: made from what its view has, nothing is asked for. Pure. */

import { between } from "../view/axes";
import { type Line, RunModel } from "../view/model";

/** From its first steps to its end, in seconds since it was created; null where it is not known when a step was done. */
export function span(model: RunModel): [number, number] | null {
  const seconds = model.line("seconds");
  if (!model.over || !seconds || seconds.x.length < 2) return null;
  const { created, started } = model.state ?? {};
  const from = created != null && started != null ? Math.max(0, started - created) : 0;
  const to = Math.max(
    from,
    ...[...model.lines].filter(([key]) => isOverTime(key)).map(([, line]) => line.x.at(-1) ?? 0),
  );
  const end = Math.max(to, seconds.y.at(-1) ?? 0);
  return end > from ? [from, end] : null;
}

/** What was known `seconds` after the run was created: lines, newest values, samples/s. */
export function modelAt(whole: RunModel, seconds: number): RunModel {
  const model = new RunModel();
  const step = stepAt(whole, seconds);
  model.run = whole.run;
  model.state = whole.state;
  for (const [key, line] of whole.lines) {
    const cut = until(line, isOverTime(key) ? seconds : step);
    if (cut.x.length) model.lines.set(key, cut);
  }
  for (const name of Object.keys(whole.latest)) {
    const value = newest(model, name);
    if (value !== null) model.latest[name] = value;
  }
  if (whole.progress) model.progress = { ...whole.progress, rate: model.line("rate")?.y.at(-1) ?? null };
  return model;
}

/** As the charts have it: exact values of epochs once there are two of them, before that running ones. */
function newest(model: RunModel, name: string): number | null {
  const epochs = model.line(`epochs:${name}`);
  return (epochs && epochs.x.length > 1 ? epochs : model.line(`metric:${name}`))?.y.at(-1) ?? null;
}

/** The step that was under way. Before the first that is known there was none. */
export function stepAt(model: RunModel, seconds: number): number {
  const line = model.line("seconds");
  if (!line?.x.length) return 0;
  const knots = { x: line.y.map((second) => second ?? 0), y: line.x };
  const at = Math.min(Math.max(seconds, 0), knots.x.at(-1) ?? 0);
  return Math.max(0, between(knots, at));
}

/** Lines over seconds; the others are over steps. */
function isOverTime(key: string): boolean {
  return /^(rate$|gpu:|cpu:|memory:)/.test(key);
}

function until({ x, y }: Line, end: number): Line {
  let count = x.length;
  while (count > 0 && (x[count - 1] as number) > end) count -= 1;
  return { x: x.slice(0, count), y: y.slice(0, count) };
}
