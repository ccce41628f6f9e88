/** The one line that says where a run stands: epoch, step, and how old that news is. */

import { age, number, plural } from "./format";
import type { RunModel } from "./model";

/** A kernel that watches a run says something every second, if only that nothing happened. */
export const SILENT_SECONDS = 20;

/** "epoch 8 of 10 · step 412 of 938 · point 0.8 s old". */
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
  if (isSilent(model)) parts.push(`no word from the kernel for ${age(model.now() - model.told)}`);
  else if (progress.heard !== null && state.started !== null && !model.over) {
    parts.push(`point ${age(model.now() - progress.heard)} old`);
  }
  return parts.join(" · ");
}

/** Whether the kernel should have said something by now: it is busy, or gone. */
export function isSilent(model: RunModel): boolean {
  return !model.over && model.told > 0 && model.now() - model.told > SILENT_SECONDS;
}
