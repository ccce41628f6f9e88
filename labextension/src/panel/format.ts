/** Texts of a row of the list. Pure. */

import type { Listed } from "../api";
import type { RunRow, SearchRow } from "../generated";
import type { Translation } from "../translation";
import { clock, date, duration, number } from "../view/format";
import { stateWord } from "../view/phases";
import { isReadable, isSearch } from "./runlist";

/** The title of a run, else its name, else its id; the name of a search. */
export function title(row: Listed): string {
  if (isSearch(row)) return row.name || row.id;
  return isReadable(row) ? row.title || row.name || row.id : row.id;
}

/** "34 of 40 trials · 1:05 left"; of a search that has not finished why. */
export function searchProgress(search: SearchRow, trans: Translation): string {
  const { done, planned, remaining, message } = search;
  const trials = trans._n("%1 trial", "%1 trials", planned ?? done);
  const parts = [planned === null ? trials : trans.__("%1 of %2", done, trials)];
  if (remaining !== null) parts.push(trans.__("%1 left", duration(remaining)));
  if (!search.live && message) parts.push(message);
  return parts.join(" · ");
}

/** "val_accuracy 0.957 · trial 7": the best of a search so far; empty if there is none. */
export function bestOf({ objective, best, best_trial }: SearchRow, trans: Translation): string {
  if (best === null || best_trial === null) return "";
  return trans.__("%1 %2 · trial %3", objective, number(best), best_trial);
}

/** What was sampled for a trial: "lr 0.01 · units 64". */
export function parameters(run: RunRow): string {
  return Object.entries(run.parameters)
    .map(([name, value]) => `${name} ${/^-?\d/.test(value) && Number.isFinite(+value) ? number(+value) : value}`)
    .join(" · ");
}

/** The state of a run or a search, in capitals; of a trial that its search has pruned that, and not STOPPED. */
export function shownState(row: RunRow | SearchRow): string {
  return !isSearch(row) && row.trial_state === "pruned" ? "PRUNED" : row.state;
}

/** What a row says of it. */
export function wordOf(row: RunRow | SearchRow): string {
  return stateWord(shownState(row));
}

/** "grid search" */
export function sampler({ search }: SearchRow, trans: Translation): string {
  return search === null ? "" : trans.__("%1 search", search);
}

/** The value of the objective of a trial, as its search has it; else the loss. The sparkline is of the same. */
export function score(run: RunRow, search: SearchRow | null, trans: Translation): string {
  if (search && run.trial_value !== null) return `${search.objective} ${number(run.trial_value)}`;
  return run.loss === null ? "" : trans.__("loss %1", number(run.loss));
}

/** The progress of a run or a search. */
export function progressOf(row: RunRow | SearchRow, trans: Translation): string {
  return isSearch(row) ? searchProgress(row, trans) : progress(row, trans);
}

/**
 * "57 % · 2:13 left" or "epoch 3"; before training what the run waits for; of a run that has ended the reason or
 * "5 of 5 epochs"; empty if unknown.
 */
export function progress(run: RunRow, trans: Translation): string {
  if (!run.live)
    return run.trial_reason || (run.failure ?? ((run.state === "LOST" && run.message) || epochsDone(run, trans)));
  if (run.state !== "RUNNING" && run.state !== "STOPPING") return run.message;
  const parts: string[] = [];
  // The last epoch of a fit: another fit may follow, and then what the cell does after it, and the model is fetched.
  if (run.fraction !== null && run.fraction >= 1) return epochsDone(run, trans);
  if (run.fraction !== null) parts.push(trans.__("%1 %", Math.floor(run.fraction * 100)));
  else if (run.last_seen !== null) parts.push(trans.__("epoch %1", run.epoch + 1));
  if (run.remaining !== null) parts.push(trans.__("%1 left", duration(run.remaining)));
  return parts.join(" · ");
}

/** Seconds since a run was created, or until it ended. */
export function elapsed(run: Pick<RunRow, "created" | "ended">, now: number): number {
  return Math.max(0, (run.ended ?? now) - run.created);
}

/** The time of day if it is today, "14:32", else the date. `now` is in seconds, too. */
export function dateOrTime(seconds: number, now: number): string {
  return date(seconds) === date(now) ? clock(seconds).slice(0, -":00".length) : date(seconds);
}

/** The cluster, and the file name of the notebook. */
export function location(run: Pick<RunRow, "cluster" | "notebook">): string {
  return [run.cluster, run.notebook.split("/").at(-1)].filter(Boolean).join(" · ");
}

/** The whole row as text for screen readers. */
export function rowLabel(row: Listed, search: SearchRow | null, trans: Translation): string {
  if (isSearch(row)) {
    const about = [searchProgress(row, trans), bestOf(row, trans), location(row)];
    return [trans.__("search %1", title(row)), wordOf(row).toLowerCase(), ...about].filter(Boolean).join(", ");
  }
  if (!isReadable(row)) return trans.__("%1, cannot be read: %2", row.id, row.problem);
  const parts = [title(row), wordOf(row).toLowerCase(), progress(row, trans)];
  parts.push(score(row, search, trans));
  if (search) return [...parts, parameters(row), ...row.labels].filter(Boolean).join(", ");
  parts.push(size(row, trans));
  return [...parts, location(row), ...row.labels].filter(Boolean).join(", ");
}

/** "1 worker", "4 workers", of --workers 2..4 "2..4 workers"; a monitor has none. */
export function size(run: Pick<RunRow, "workers" | "min_workers" | "strategy">, trans: Translation): string {
  if (run.strategy === "monitor") return trans.__("monitor");
  if (run.min_workers !== null) return trans.__("%1..%2 workers", run.min_workers, run.workers);
  return run.workers === null ? "" : trans._n("%1 worker", "%1 workers", run.workers);
}

function epochsDone(run: RunRow, trans: Translation): string {
  if (!run.epochs) return "";
  return trans.__("%1 of %2", number(run.epoch), trans._n("%1 epoch", "%1 epochs", run.epochs));
}

/** "2 running · 1 queued", of what has not ended; empty if there is nothing. */
export function activity(live: readonly (RunRow | SearchRow)[], trans: Translation): string {
  const queued = live.filter(({ state }) => state === "QUEUED").length;
  const running = live.length - queued;
  const parts = [running && trans.__("%1 running", running), queued && trans.__("%1 queued", queued)];
  return parts.filter(Boolean).join(" · ");
}
