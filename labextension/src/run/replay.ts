/** Reconstructs the state of a run at an earlier time, from its model and its recording. Pure. */

import { COLUMNS, type RunProgress } from "../generated";
import { epochAt, interpolate } from "../view/axes";
import { type Line, MAX_LOG_LINES, RunModel } from "../view/model";
import type { PrintedLine } from "./logpages";
import type { Frame } from "./recording";

/** From the first steps of a run to its end, in seconds since it was created; null if it cannot be replayed. */
export function timeSpan(model: RunModel): [number, number] | null {
  const seconds = model.line("seconds");
  if (!model.over || !seconds || seconds.x.length < 2) return null;
  const begin = model.trainingBegin;
  const ends = [...model.lines].filter(([key]) => isOverTime(key)).map(([, line]) => line.x.at(-1) ?? 0);
  const end = Math.max(begin, seconds.y.at(-1) ?? 0, ...ends);
  return end > begin ? [begin, end] : null;
}

/** A model whose clock stands still. */
class PastModel extends RunModel {
  constructor(private readonly time: number) {
    super();
  }

  override now(): number {
    return this.time;
  }
}

/**
 * The model as it was `seconds` after the run was created.
 *
 * @param current the model of the run
 * @param frames the workers' table, in order of time
 * @param printed the log, in order of time
 */
export function modelAt(
  current: RunModel,
  seconds: number,
  frames: readonly Frame[] = [],
  printed: readonly PrintedLine[] = [],
): RunModel {
  const created = current.state?.created ?? 0;
  const past = new PastModel(created + seconds);
  const step = stepAt(current, seconds);
  past.run = current.run;
  if (current.state) past.state = { ...current.state, state: "RUNNING", message: "", failure: null, ended: null };
  for (const [key, line] of current.lines) {
    const part = until(line, isOverTime(key) ? seconds : step);
    if (part.x.length) past.lines.set(key, part);
  }
  for (const name of Object.keys(current.latest)) {
    const value = (past.exactLine(name) ?? past.line(`metric:${name}`))?.y.at(-1);
    if (value != null) past.latest[name] = value;
  }
  if (current.progress) past.progress = progressAt(current, current.progress, past, step);
  addWorkers(past, current, frames.findLast((frame) => frame.seconds <= seconds)?.rows);
  const later = printed.findIndex(({ time }) => time - created > seconds);
  past.logged = later < 0 ? printed.length : later;
  const newest = printed.slice(Math.max(0, past.logged - MAX_LOG_LINES), past.logged);
  past.logs = newest.map(({ rank, level, text }) => [rank, level, text]);
  return past;
}

/** With several calls of `fit`, it is unknown which epochs belong to which: they are numbered through, without a total. */
function progressAt(current: RunModel, progress: RunProgress, past: RunModel, step: number): RunProgress {
  const { steps, peak } = progress;
  const epochs = progress.fit > 0 ? 0 : progress.epochs;
  const done = epochAt(current.line("epoch"), steps, step) ?? 0;
  // Less than a thousandth of an epoch is a rounding error of the conversion from steps and back.
  const epoch = Math.floor(done + 1e-3);
  return {
    fit: 0,
    epoch,
    epochs,
    step: Math.max(0, Math.round(steps ? (done - epoch) * steps : step)),
    steps,
    fraction: epochs ? Math.min(done / epochs, 1) : 0,
    end: null,
    last_seen: null,
    rate: past.line("rate")?.y.at(-1) ?? null,
    peak,
  };
}

/** Adds the ranks of a frame. Their host and device are the current ones, their state is unknown. */
function addWorkers(past: RunModel, current: RunModel, rows: Float32Array = new Float32Array()): void {
  past.applyRows(rows.length / COLUMNS.length, rows);
  for (const worker of past.workers.values()) {
    const known = current.workers.get(worker.info.rank);
    if (known) worker.info = { ...known.info, state: "", message: "" };
  }
}

/** The step at a time; 0 before the first step. */
export function stepAt(model: RunModel, seconds: number): number {
  const line = model.line("seconds");
  if (!line?.x.length) return 0;
  const knots = { x: line.y.map((second) => second ?? 0), y: line.x };
  const time = Math.min(Math.max(seconds, 0), knots.x.at(-1) ?? 0);
  return Math.max(0, interpolate(knots, time));
}

/** Whether a line is over seconds; the others are over steps. */
function isOverTime(key: string): boolean {
  return /^(rate$|workers$|gpu:|cpu:|memory:|data:)/.test(key);
}

/** The points of a line up to `end`. */
function until({ x, y }: Line, end: number): Line {
  const count = x.findLastIndex((at) => at <= end) + 1;
  return { x: x.slice(0, count), y: y.slice(0, count) };
}
