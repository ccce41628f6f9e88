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
  const best = direction === "max" ? -1 : 1;
  const compare = (a: TrialView, b: TrialView): number => {
    if (column === "best") return compareStates(a, b) || compareValues(a.value, b.value, best);
    const sign = descending ? -1 : 1;
    if (column === "state") return sign * compareStates(a, b);
    if (column === "number") return sign * (a.number - b.number);
    if (column === "seconds") return sign * (seconds(a) - seconds(b));
    if (column === "value") return compareValues(a.value, b.value, sign);
    if (column === "epochs") return sign * (a.epochs - b.epochs);
    const [kind, index] = [column.slice(0, "param".length), Number(column.slice("param:".length))];
    const value = (trial: TrialView) => (kind === "param" ? trial.params : trial.others)[index] ?? null;
    return compareValues(value(a), value(b), sign);
  };
  return [...trials].sort((a, b) => compare(a, b) || a.number - b.number);
}

function compareStates(a: TrialView, b: TrialView): number {
  return PLACES[a.state] - PLACES[b.state];
}

type Sortable = TrialView["params"][number];

/** Values that are missing come last, in both directions. */
function compareValues(a: Sortable, b: Sortable, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b));
}
