/** Ticks and ranges of the charts. */

import { duration, number } from "./format";
import type { Line } from "./model";

export interface Tick {
  at: number;
  label: string;
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800];

/** The smallest of 1, 2, 5 times a power of ten that is not below `least`. */
export function nice(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9)) ?? 10;
  return step * power;
}

function multiples(step: number, from: number, to: number): number[] {
  const first = Math.ceil(from / step - 1e-9);
  const last = Math.floor(to / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step);
}

/** Seconds as minutes and hours; about `most` ticks. */
export function timeTicks(from: number, to: number, most: number): Tick[] {
  const step = TIME_STEPS.find((seconds) => (to - from) / seconds <= most) ?? nice((to - from) / most);
  return multiples(step, from, to).map((at) => ({ at, label: duration(at) }));
}

/**
 * Steps as epochs. `starts` says at which step (x) which epoch (y, from 0) began; an epoch of `steps` steps may be under
 * way after the last of them. Where epochs say nothing the ticks count steps.
 */
export function epochTicks(
  starts: Line | undefined,
  steps: number | null,
  from: number,
  to: number,
  most: number,
): Tick[] {
  const knots = epochKnots(starts, steps);
  const [first, last] = knots ? [between(knots, from), between(knots, to)] : [0, 0];
  if (!knots || !(last > first)) {
    return countTicks("step", from, to, most);
  }
  const inverse = { x: knots.y, y: knots.x };
  return multiples(nice((last - first) / most), first, last).map((epoch, i) => {
    const words = String(Number(epoch.toPrecision(4)));
    return { at: between(inverse, epoch), label: i ? words : `epoch ${words}` };
  });
}

/** Whole numbers of a thing, which the first tick names. */
export function countTicks(thing: string, from: number, to: number, most: number): Tick[] {
  const step = Math.max(1, nice(Math.max(to - from, 1) / most));
  return multiples(step, from, to).map((at, i) => ({ at, label: i ? number(at) : `${thing} ${number(at)}` }));
}

/** The epoch at a step, in epochs done, or null where that is not known. */
export function epochAt(starts: Line | undefined, steps: number | null, x: number): number | null {
  const knots = epochKnots(starts, steps);
  return knots ? between(knots, x) : null;
}

/** Points of a piecewise linear curve, by rising x. */
export interface Knots {
  x: number[];
  y: number[];
}

/** Where epochs are known, steps (x) and the epochs done at them (y); null where they are not. */
export function epochKnots(starts: Line | undefined, steps: number | null): Knots | null {
  if (!starts?.x.length) return null;
  const knots = { x: [...starts.x], y: starts.y.map((epoch) => epoch ?? 0) };
  const length = steps ?? lastLength(knots);
  if (!length) return null;
  knots.x.push((knots.x.at(-1) as number) + length);
  knots.y.push((knots.y.at(-1) as number) + 1);
  return knots;
}

function lastLength({ x, y }: Knots): number {
  const n = x.length;
  if (n < 2) return 0;
  const epochs = (y[n - 1] as number) - (y[n - 2] as number);
  return epochs > 0 ? ((x[n - 1] as number) - (x[n - 2] as number)) / epochs : 0;
}

/** Piecewise linear, going on straight beyond both ends; a single knot holds everywhere. */
export function between({ x, y }: Knots, value: number): number {
  let [low, high] = [0, x.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((x[middle] as number) <= value) low = middle;
    else high = middle;
  }
  const [x0, x1, y0, y1] = [x[low], x[high], y[low], y[high]] as [number, number, number, number];
  return x1 === x0 ? y1 : y0 + ((value - x0) / (x1 - x0)) * (y1 - y0);
}

/** Both ends of a y axis, or "zero" for one that begins there. */
export type Range = readonly [number, number] | "zero";

/** The y range for values between `low` and `high`: from zero, unless that would flatten the line. */
export function valueRange(low: number, high: number, range?: Range): [number, number] {
  if (range && range !== "zero") return [...range];
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  if (range === "zero") return [0, high > 0 ? high * 1.08 : 1];
  if (low === high) return low === 0 ? [0, 1] : low > 0 ? [0, low * 1.25] : [low * 1.25, 0];
  const pad = (high - low) * 0.08;
  if (low >= 0 && low < 0.5 * high) return [0, high + pad];
  return [low - pad, high + pad];
}
