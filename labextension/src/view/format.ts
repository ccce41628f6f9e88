/** Numbers as text. An unknown value is an en dash, never a zero. */

import type { RunInfo } from "../generated";

export const UNKNOWN = "–";

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** Three significant digits with grouped thousands: 0.130, 26.1, 5,420, 1.2e-7. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return grouped.format(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return value.toExponential(1).replace("e+", "e");
  if (size >= 100) return grouped.format(value);
  if (size >= 10) return value.toFixed(1);
  return value.toPrecision(3);
}

/** A number for an axis: 0.5, 20, 10k, 1.5M. */
export function tick(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  if (size > 0 && size < 1e-3) return value.toExponential(0);
  return grouped.format(value).length > 3 ? grouped.format(value) : String(Number(value.toPrecision(4)));
}

/** Seconds as 0:07, 2:13 or 1:02:13. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const two = (n: number) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

const padded = (value: number) => String(value).padStart(2, "0");

/** A time of day, of seconds since the epoch: 14:32:19, by the reader's clock. */
export function clock(seconds: number): string {
  const at = new Date(seconds * 1000);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map(padded).join(":");
}

/** Its date: 2026-11-26. */
export function date(seconds: number): string {
  const at = new Date(seconds * 1000);
  return [at.getFullYear(), at.getMonth() + 1, at.getDate()].map(padded).join("-");
}

/** Both: 2026-11-26 14:32:19. */
export function dateTime(seconds: number): string {
  return `${date(seconds)} ${clock(seconds)}`;
}

/** Seconds as 0.8 s, 12 s, 3 min or 2 h. */
export function age(seconds: number): string {
  if (seconds < 9.95) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** A percentage: 57 %. */
export function percent(value: number): string {
  return Number.isFinite(value) ? `${Math.round(value)} %` : UNKNOWN;
}

const GB = 1e9;

/** Bytes as gigabytes: 3.9 GB, 0.25 GB. */
export function gigabytes(bytes: number): string {
  return Number.isFinite(bytes) ? `${inGigabytes(bytes)} GB` : UNKNOWN;
}

/** Used and total bytes: 5.1 / 16 GB. */
export function gigabytesOf(used: number, total: number): string {
  if (!Number.isFinite(used)) return UNKNOWN;
  return Number.isFinite(total) ? `${inGigabytes(used)} / ${inGigabytes(total)} GB` : gigabytes(used);
}

/** Watts drawn and allowed: 312 / 700 W. */
export function wattsOf(drawn: number, allowed: number): string {
  if (!Number.isFinite(drawn)) return UNKNOWN;
  return Number.isFinite(allowed) ? `${drawn.toFixed(0)} / ${allowed.toFixed(0)} W` : `${drawn.toFixed(0)} W`;
}

function inGigabytes(bytes: number): string {
  const value = bytes / GB;
  return value >= 10 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}

/** "1 worker", "4 workers". */
export function plural(count: number, noun: string): string {
  return `${grouped.format(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** "2 workers", or of --workers 2..4 "2..4 workers". */
export function workerCount({ workers, min_workers: least }: Pick<RunInfo, "workers" | "min_workers">): string {
  return least == null ? plural(workers, "worker") : `${least}..${workers} workers`;
}
