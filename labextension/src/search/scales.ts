/** Axes of parallel coordinates: where a value stands, and which trials the chosen ranges contain. */

import type { SearchAxis, TrialView } from "../generated";
import { number } from "../view/format";

export type Value = TrialView["params"][number];

export interface Scale {
  name: string;
  /** Where a value stands, 0 (bottom) to 1; null if the axis does not have it. */
  position(value: Value): number | null;
  /** What stands at a position, as text. */
  label(position: number): string;
  /** The axis' value of a trial. */
  of(trial: TrialView): Value;
}

/** A chosen part of an axis, from 0 to 1. */
export type Brush = readonly [low: number, high: number];

/** The axis of the parameter number `index`. */
export function parameterScale(axis: SearchAxis, index: number): Scale {
  const of = (trial: TrialView) => trial.params[index] ?? null;
  const { name, choices } = axis;
  if (choices) {
    const last = Math.max(1, choices.length - 1);
    return {
      name,
      of,
      position: (value) => {
        const at = choices.indexOf(value);
        return at < 0 ? null : choices.length === 1 ? 0.5 : at / last;
      },
      label: (position) => String(choices[Math.round(position * last)] ?? "None"),
    };
  }
  return { name, of, ...numbers(axis.low, axis.high, axis.log) };
}

/** The axis of an objective, over the values that the trials have. */
export function objectiveScale(
  name: string,
  trials: Iterable<TrialView>,
  of: (trial: TrialView) => number | null = ({ value }) => value,
): Scale {
  return { name, of, ...numbers(...range(trials, of), false) };
}

function numbers(low: number, high: number, log: boolean): Pick<Scale, "position" | "label"> {
  const [forward, back] = log ? [Math.log, Math.exp] : [(x: number) => x, (x: number) => x];
  const [from, to] = [forward(low), forward(high)];
  return {
    position: (value) => {
      if (typeof value !== "number") return null;
      return to === from ? 0.5 : Math.min(1, Math.max(0, (forward(value) - from) / (to - from)));
    },
    label: (position) => number(back(from + position * (to - from))),
  };
}

/**
 * The range of the objective: of the trials that were not pruned, if there are two, because values that were far off are
 * among those of the others.
 */
export function range(
  trials: Iterable<TrialView>,
  of: (trial: TrialView) => number | null = ({ value }) => value,
): [number, number] {
  const all = [...trials];
  const values = (some: TrialView[]) => some.map(of).filter((value) => value !== null);
  const good = values(all.filter(({ state }) => state !== "pruned" && state !== "failed"));
  const shown = good.length > 1 ? good : values(all);
  if (!shown.length) return [0, 1];
  const [low, high] = [shown.reduce((a, b) => Math.min(a, b)), shown.reduce((a, b) => Math.max(a, b))];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

/** Whether all brushes contain the trial's values. */
export function isChosen(trial: TrialView, scales: readonly Scale[], brushes: ReadonlyMap<string, Brush>): boolean {
  return scales.every((scale) => {
    const brush = brushes.get(scale.name);
    if (!brush) return true;
    const at = scale.position(scale.of(trial));
    return at !== null && at >= brush[0] && at <= brush[1];
  });
}
