/** A run that has ended, as it was at a moment of it: made from what its view has, and its recording. Pure. */

import { between, epochAt } from "../view/axes";
import { COLUMNS, type RunProgress } from "../view/messages";
import { type Line, LOG_LINES, RunModel } from "../view/model";
import type { LogLine } from "./logpages";
import type { Frame } from "./recording";

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

/** Its clock stands at the moment that it shows. */
class PastModel extends RunModel {
  constructor(private readonly moment: number) {
    super();
  }

  override now(): number {
    return this.moment;
  }
}

/** What was known `seconds` after the run was created. The frames and lines are in the order of time. */
export function modelAt(
  whole: RunModel,
  seconds: number,
  frames: readonly Frame[] = [],
  printed: readonly LogLine[] = [],
): RunModel {
  const created = whole.state?.created ?? 0;
  const model = new PastModel(created + seconds);
  const step = stepAt(whole, seconds);
  model.run = whole.run;
  if (whole.state) model.state = { ...whole.state, state: "RUNNING", message: "", failure: null, ended: null };
  for (const [key, line] of whole.lines) {
    const cut = until(line, isOverTime(key) ? seconds : step);
    if (cut.x.length) model.lines.set(key, cut);
  }
  for (const name of Object.keys(whole.latest)) {
    const value = newestOf(model, name);
    if (value !== null) model.latest[name] = value;
  }
  if (whole.progress) model.progress = progressAt(whole, whole.progress, model, step);
  takeWorkers(model, whole, frames.findLast((frame) => frame.seconds <= seconds)?.rows);
  const later = printed.findIndex(({ time }) => time - created > seconds);
  model.logged = later < 0 ? printed.length : later;
  const newest = printed.slice(Math.max(0, model.logged - LOG_LINES), model.logged);
  model.logs = newest.map(({ rank, level, text }) => [rank, level, text]);
  return model;
}

/** Which epochs are of which of several calls of `fit` is not known any more: they count through, without an end. */
function progressAt(whole: RunModel, progress: RunProgress, past: RunModel, step: number): RunProgress {
  const { steps, peak } = progress;
  const at = epochAt(whole.line("epoch"), steps, step) ?? 0;
  const epochs = progress.fit > 0 ? 0 : progress.epochs;
  // A step is a fraction of an epoch here, and back again: what is less than a thousandth is rounding.
  const epoch = Math.floor(at + 1e-3);
  return {
    fit: 0,
    epoch,
    epochs,
    step: Math.max(0, Math.round(steps ? (at - epoch) * steps : step)),
    steps,
    fraction: epochs ? Math.min(at / epochs, 1) : 0,
    remaining: null,
    heard: null,
    rate: past.line("rate")?.y.at(-1) ?? null,
    peak,
  };
}

/** The ranks that had said something; what they are is as it was at the end, but for their state. */
function takeWorkers(model: RunModel, whole: RunModel, rows: Float32Array = new Float32Array()): void {
  model.takeRows(rows.length / COLUMNS.length, rows);
  for (const worker of model.workers.values()) {
    const known = whole.workers.get(worker.facts.rank);
    if (known) worker.facts = { ...known.facts, state: "", message: "" };
  }
}

/** As the charts have it: exact values of epochs once there are two of them, before that running ones. */
function newestOf(model: RunModel, name: string): number | null {
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
