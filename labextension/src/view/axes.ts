/** Ticks and ranges of the charts. */

import { duration, number } from "./format";
import type { Line } from "./model";

export interface Tick {
  at: number;
  label: string;
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800];

/** The smallest of 1, 2 or 5 times a power of ten that is at least `minimum`. */
export function nice(minimum: number): number {
  const power = 10 ** Math.floor(Math.log10(minimum));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= minimum * (1 - 1e-9)) ?? 10;
  return step * power;
}

export function multiples(step: number, from: number, to: number): number[] {
  const first = Math.ceil(from / step - 1e-9);
  const last = Math.floor(to / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step);
}

/** Ticks of an axis in seconds; about `count` of them. */
export function timeTicks(from: number, to: number, count: number): Tick[] {
  const step = TIME_STEPS.find((seconds) => (to - from) / seconds <= count) ?? nice((to - from) / count);
  return multiples(step, from, to).map((at) => ({ at, label: duration(at) }));
}

/**
 * Ticks of an axis in steps, labelled with epochs if they are known, else with steps.
 *
 * @param starts the line "epoch": steps (x) and the epochs done at them (y)
 * @param steps steps per epoch, null if unknown
 */
export function epochTicks(
  starts: Line | undefined,
  steps: number | null,
  from: number,
  to: number,
  count: number,
): Tick[] {
  const knots = epochKnots(starts, steps);
  const [first, last] = knots ? [interpolate(knots, from), interpolate(knots, to)] : [0, 0];
  if (!knots || !(last > first)) return countTicks("step", from, to, count);
  const inverse = { x: knots.y, y: knots.x };
  return multiples(nice((last - first) / count), first, last).map((epoch, i) => {
    const label = String(Number(epoch.toPrecision(4)));
    return { at: interpolate(inverse, epoch), label: i ? label : `epoch ${label}` };
  });
}

/** Integer ticks; the first label names the unit. */
export function countTicks(unit: string, from: number, to: number, count: number): Tick[] {
  const step = Math.max(1, nice(Math.max(to - from, 1) / count));
  return multiples(step, from, to).map((at, i) => ({ at, label: i ? number(at) : `${unit} ${number(at)}` }));
}

/** The epochs done at a step; null if unknown. The parameters are those of `epochTicks`. */
export function epochAt(starts: Line | undefined, steps: number | null, step: number): number | null {
  const knots = epochKnots(starts, steps);
  return knots ? interpolate(knots, step) : null;
}

/** Points of a piecewise linear curve, in order of x. */
export interface Knots {
  x: number[];
  y: number[];
}

/** Steps (x) and the epochs done at them (y), continued by one epoch; null if the length of an epoch is unknown. */
export function epochKnots(starts: Line | undefined, steps: number | null): Knots | null {
  const lastStep = starts?.x.at(-1);
  if (!starts || lastStep === undefined) return null;
  const x = [...starts.x];
  const y = starts.y.map((epoch) => epoch ?? 0);
  const length = steps ?? lastLength({ x, y });
  if (!length) return null;
  x.push(lastStep + length);
  y.push((y.at(-1) ?? 0) + 1);
  return { x, y };
}

/** Steps per epoch between the last two knots; 0 if unknown. */
function lastLength({ x, y }: Knots): number {
  const [x0, x1] = x.slice(-2);
  const [y0, y1] = y.slice(-2);
  if (x0 === undefined || x1 === undefined || y0 === undefined || y1 === undefined) return 0;
  return y1 > y0 ? (x1 - x0) / (y1 - y0) : 0;
}

/** Piecewise linear interpolation, and extrapolation beyond both ends. A single knot is a constant, none gives NaN. */
export function interpolate({ x, y }: Knots, value: number): number {
  const at = (values: number[], i: number) => values[i] ?? Number.NaN;
  let [low, high] = [0, x.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (at(x, middle) <= value) low = middle;
    else high = middle;
  }
  const [x0, x1, y0, y1] = [at(x, low), at(x, high), at(y, low), at(y, high)];
  return x1 === x0 ? y1 : y0 + ((value - x0) / (x1 - x0)) * (y1 - y0);
}

/** Both ends of a y axis, or "zero" for one that begins at 0. */
export type Range = readonly [number, number] | "zero";

/** The y range for values from `low` to `high`: it begins at 0 unless that would flatten the line. */
export function valueRange(low: number, high: number, range?: Range): [number, number] {
  if (range && range !== "zero") return [...range];
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  if (range === "zero") return [0, high > 0 ? high * 1.08 : 1];
  if (low === high) return low === 0 ? [0, 1] : low > 0 ? [0, low * 1.25] : [low * 1.25, 0];
  const pad = (high - low) * 0.08;
  if (low >= 0 && low < 0.5 * high) return [0, high + pad];
  return [low - pad, high + pad];
}
