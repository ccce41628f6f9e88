/** Which ranks hold the job back: the speed of each rank against the median. */

import type { Numbers, Worker } from "./model";

/** A rank that takes this many times the median is called slow. */
export const SLOW = 1.2;

/** Maximum number of slow ranks below the heat map. */
const MAX_OUTLIERS = 8;

/** The lower median, so that of two ranks the faster one is the reference. NaN if no value is finite. */
export function median(values: readonly number[]): number {
  const finite = values.filter(Number.isFinite).sort((a, b) => a - b);
  return finite[(finite.length - 1) >> 1] ?? Number.NaN;
}

/**
 * Rank -> how many times slower than the median.
 *
 * @param byRate compare samples/s, as in a parameter-server run, instead of the time per step that a rank computes and
 *   waits for data: the others wait for both
 */
export function slowness(workers: readonly Worker[], byRate: boolean): Map<number, number> {
  const cost = ({ numbers }: Worker) => (byRate ? 1 / numbers.rate : numbers.compute + dataTime(numbers));
  const typical = median(workers.map(cost));
  return new Map(workers.map((worker) => [worker.info.rank, cost(worker) / typical]));
}

/** Milliseconds per step of waiting for data. */
function dataTime({ compute, data, waiting, network, summing }: Numbers): number {
  const others = [data, waiting, network, summing].reduce((sum, share) => sum + (share || 0), 0);
  return data > 0 && others < 1 ? (compute * data) / (1 - others) : 0;
}

/** "1.8× slower"; empty for a rank that keeps up. */
export function slower(ratio: number | undefined): string {
  return ratio !== undefined && ratio >= SLOW ? `${ratio.toFixed(1)}× slower` : "";
}

/** The ranks that get a row if there are too many for a table: those in `also`, then the slowest. */
export function outliers(workers: readonly Worker[], ratios: Map<number, number>, also: readonly number[]): Worker[] {
  const ratio = (worker: Worker) => ratios.get(worker.info.rank) ?? 0;
  const slow = workers.filter((worker) => ratio(worker) >= SLOW).sort((a, b) => ratio(b) - ratio(a));
  const named = workers.filter((worker) => also.includes(worker.info.rank));
  return [...new Set([...named, ...slow.slice(0, MAX_OUTLIERS)])];
}

/** One sentence for the heading of the heat map. */
export function verdict(ratios: Map<number, number>): string {
  const slow = [...ratios.values()].filter((ratio) => ratio >= SLOW).length;
  if (![...ratios.values()].some(Number.isFinite)) return "";
  if (!slow) return "all ranks keep up";
  return slow === 1 ? "one rank holds the job back" : `${slow} ranks hold the job back`;
}
