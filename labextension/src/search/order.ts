/** The order of the trials in the table. */

import type { TrialState, TrialView } from "../generated";

export interface Order {
  /** "best" is the order without a choice of the reader; "param:0" is the first parameter. */
  column: "best" | "number" | "state" | "value" | "epochs" | "seconds" | `param:${number}` | `other:${number}`;
  descending: boolean;
}

export const BEST_FIRST: Order = { column: "best", descending: false };

/** The place of each state in the order. */
const PLACES: Record<TrialState, number> = { finished: 0, training: 1, waiting: 2, pruned: 3, failed: 4 };

/** The trials in order; equal ones, and those without a value at the end, by number. */
export function ordered(
  trials: Iterable<TrialView>,
  { column, descending }: Order,
  direction: "max" | "min",
  seconds: (trial: TrialView) => number,
): TrialView[] {
  const value = (trial: TrialView): Sortable => {
    if (column === "state") return PLACES[trial.state];
    if (column === "seconds") return seconds(trial);
    if (column === "number" || column === "epochs" || column === "value") return trial[column];
    const [kind, index] = column.split(":");
    return (kind === "param" ? trial.params : trial.others)[Number(index)] ?? null;
  };
  const compare = (a: TrialView, b: TrialView): number => {
    if (column !== "best") return compareValues(value(a), value(b), descending ? -1 : 1);
    return PLACES[a.state] - PLACES[b.state] || compareValues(a.value, b.value, direction === "max" ? -1 : 1);
  };
  return [...trials].sort((a, b) => compare(a, b) || a.number - b.number);
}

type Sortable = TrialView["params"][number];

/** Values that are missing come last, in both directions. */
function compareValues(a: Sortable, b: Sortable, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b));
}
