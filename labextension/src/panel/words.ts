/** What a row of the list says, in words. Pure. */

import type { Row, Run } from "../api";
import type { Translation } from "../translation";
import { duration, number } from "../view/format";
import { readable } from "./runlist";

/** What a reader calls it. */
export function title(row: Row): string {
  return readable(row) ? row.title || row.name || row.id : row.id;
}

/** How far it is: "57 % · 2:13 left", "epoch 3", or why it failed; empty where nothing is known. */
export function progress(run: Run, trans: Translation): string {
  if (!run.live) return run.failure ?? epochs(run, trans);
  const parts: string[] = [];
  if (run.fraction !== null) parts.push(trans.__("%1 %", Math.floor(run.fraction * 100)));
  else if (run.heard !== null) parts.push(trans.__("epoch %1", run.epoch + 1));
  if (run.remaining !== null) parts.push(trans.__("%1 left", duration(run.remaining)));
  return parts.join(" · ");
}

/** How long it has taken, in seconds. */
export function elapsed(run: Run, now: number): number {
  return Math.max(0, (run.ended ?? now) - run.created);
}

/** When it was begun: the time today, else the day. */
export function when(created: number, now: Date, locale?: string): string {
  const date = new Date(created * 1000);
  if (date.toDateString() === now.toDateString()) {
    return date.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
  }
  const year = date.getFullYear() === now.getFullYear() ? {} : { year: "numeric" as const };
  return date.toLocaleDateString(locale, { day: "numeric", month: "short", ...year });
}

/** Where it runs, and for whom: cluster and the notebook's name without its folders. */
export function place(run: Run): string {
  return [run.cluster, run.notebook.split("/").at(-1)].filter(Boolean).join(" · ");
}

/** The whole row for those who hear it. */
export function spoken(row: Row, trans: Translation): string {
  if (!readable(row)) return trans.__("%1, cannot be read: %2", row.id, row.problem);
  const parts = [title(row), row.state.toLowerCase(), progress(row, trans)];
  if (row.loss !== null) parts.push(trans.__("loss %1", number(row.loss)));
  if (row.workers !== null) parts.push(workers(row.workers, trans));
  return [...parts, place(row), ...row.labels].filter(Boolean).join(", ");
}

/** "1 worker", "4 workers". */
export function workers(count: number, trans: Translation): string {
  return trans._n("%1 worker", "%1 workers", count);
}

function epochs(run: Run, trans: Translation): string {
  if (!run.epochs) return "";
  return trans.__("%1 of %2", number(run.epoch), trans._n("%1 epoch", "%1 epochs", run.epochs));
}
