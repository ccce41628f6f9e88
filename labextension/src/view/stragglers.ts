/** Who holds the job back: each rank's speed against the median. */

import type { Worker } from "./model";

/** So many times the median is worth a reader's attention. */
export const SLOW = 1.2;

/** Ranks shown under the heat map at most. */
const OUTLIERS = 8;

/** The lower median, so that of two ranks the faster one is the measure. NaN where nothing is known. */
export function median(values: readonly number[]): number {
  const known = values.filter(Number.isFinite).sort((a, b) => a - b);
  return known[(known.length - 1) >> 1] ?? Number.NaN;
}

/** rank -> how many times slower than the median: by compute time a step, or by samples/s in a parameter-server run. */
export function behind(workers: readonly Worker[], byRate: boolean): Map<number, number> {
  const cost = ({ numbers }: Worker) => (byRate ? 1 / numbers.rate : numbers.compute);
  const typical = median(workers.map(cost));
  return new Map(workers.map((worker) => [worker.facts.rank, cost(worker) / typical]));
}

/** "1.8× slower", or nothing for a rank that keeps up. */
export function slower(ratio: number | undefined): string {
  return ratio !== undefined && ratio >= SLOW ? `${ratio.toFixed(1)}× slower` : "";
}

/** The ranks worth a row when there are too many for a table: the slowest first, then those named in `also`. */
export function outliers(workers: readonly Worker[], ratios: Map<number, number>, also: readonly number[]): Worker[] {
  const ratio = (worker: Worker) => ratios.get(worker.facts.rank) ?? 0;
  const slow = workers.filter((worker) => ratio(worker) >= SLOW).sort((a, b) => ratio(b) - ratio(a));
  const named = workers.filter((worker) => also.includes(worker.facts.rank));
  return [...new Set([...named, ...slow.slice(0, OUTLIERS)])];
}

/** One sentence for the head of the heat map. */
export function verdict(ratios: Map<number, number>): string {
  const slow = [...ratios.values()].filter((ratio) => ratio >= SLOW).length;
  if (![...ratios.values()].some(Number.isFinite)) return "";
  if (!slow) return "all ranks keep up";
  return slow === 1 ? "one rank holds the job back" : `${slow} ranks hold the job back`;
}
