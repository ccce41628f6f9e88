/** The status line of a run: epoch, step, and the age of the newest events. */

import { age, number, plural } from "./format";
import type { RunModel } from "./model";

/** The kernel sends a message every second; without one for this long, it is busy or gone. */
export const SILENT_SECONDS = 20;

/** "epoch 8 of 10 · step 412 of 938 · updated 0.8 s ago". */
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
  if (isSilent(model)) parts.push(`no message from the kernel for ${age(model.now() - model.lastSeen)}`);
  else if (progress.last_seen !== null && state.started !== null && !model.over) {
    parts.push(`updated ${age(model.now() - progress.last_seen)} ago`);
  }
  return parts.join(" · ");
}

/** Whether a message from the kernel is overdue. */
export function isSilent(model: RunModel): boolean {
  return !model.over && model.lastSeen > 0 && model.now() - model.lastSeen > SILENT_SECONDS;
}
