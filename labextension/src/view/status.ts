/** The status line of a run: epoch, step, and the age of the newest events. */

import { age, number, percent, plural } from "./format";
import { hasLeft, type Numbers, type RunModel } from "./model";
import { activity } from "./phases";

/** The kernel sends a message every second; without one for this long, it is busy or gone. */
export const SILENT_SECONDS = 20;

/** What a step may wait for, in words; the rest of its time is computing. */
const WAITS: readonly (readonly [string, keyof Numbers])[] = [
  ["waiting for data", "data"],
  ["waiting for workers", "waiting"],
  ["network", "network"],
  ["summing", "summing"],
];

/** Smaller shares of the step time are left out. */
const SHARE = 0.05;

/** Before the first step what the run does; then "epoch 8 of 10 · step 412 of 938 · 70 % computing, 30 % waiting for data · updated 0.8 s ago". */
export function status(model: RunModel): string {
  const { progress, state } = model;
  if (!progress || !state) return "";
  const parts: string[] = [];
  if (progress.fit > 0) parts.push(`fit ${progress.fit + 1}`);
  if (progress.fit >= 0) {
    const { epoch, epochs, step, steps } = progress;
    if (epochs > 0 && epoch >= epochs) {
      parts.push(`${number(epochs)} of ${plural(epochs, "epoch")}`);
    } else {
      parts.push(`epoch ${number(epoch + 1)}${epochs ? ` of ${number(epochs)}` : ""}`);
      parts.push(`step ${number(step)}${steps ? ` of ${number(steps)}` : ""}`);
    }
  }
  if (activity(model)) parts.push(activity(model));
  if (!model.over) parts.push(...stepTime(model));
  if (isSilent(model)) parts.push(`no message from the kernel for ${age(model.now() - model.lastSeen)}`);
  else if (progress.last_seen !== null && state.started !== null && !model.over) {
    parts.push(`updated ${age(model.now() - progress.last_seen)} ago`);
  }
  return parts.join(" · ");
}

/** Where the time of a step goes, the mean of the ranks: ["70 % computing, 30 % waiting for data"], or nothing. */
export function stepTime(model: RunModel): string[] {
  const ranks = model.ranks().filter((worker) => Number.isFinite(worker.numbers.data) && !hasLeft(worker));
  if (!ranks.length) return [];
  const mean = (name: keyof Numbers) =>
    ranks.reduce((sum, { numbers }) => sum + (numbers[name] || 0), 0) / ranks.length;
  const waits = WAITS.map(([words, name]): [string, number] => [words, mean(name)]);
  const computing = 1 - waits.reduce((sum, [, share]) => sum + share, 0);
  const all: [string, number][] = [["computing", computing], ...waits];
  const shown = all.filter(([, share]) => share >= SHARE).sort(([, a], [, b]) => b - a);
  return [shown.map(([words, share]) => `${percent(100 * share)} ${words}`).join(", ")];
}

/** Whether a message from the kernel is overdue. */
export function isSilent(model: RunModel): boolean {
  return !model.over && model.lastSeen > 0 && model.now() - model.lastSeen > SILENT_SECONDS;
}
