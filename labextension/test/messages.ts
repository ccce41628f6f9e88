/** Messages as the kernel packs them. */

import {
  COLUMNS,
  type Column,
  type Message,
  type RunProgress,
  type RunState,
  type SeriesKey,
  type SeriesUpdate,
  type View,
  type WorkerInfo,
} from "../src/generated";
import type { Delta } from "../src/view/model";

export const NOW = 1_795_255_200;

export const RUN = { id: "r1", name: "digits", strategy: "allreduce", workers: 2, cluster: "hdi-prod", waiting: false };

export const STATE: RunState & { created: number; started: number } = {
  state: "RUNNING",
  message: "",
  failure: null,
  ready: null,
  needed: null,
  created: NOW - 140,
  started: NOW - 133,
  ended: null,
  fetching: "",
  executors: null,
  next: null,
};

export const PROGRESS: RunProgress = {
  fit: 0,
  epoch: 7,
  epochs: 10,
  step: 412,
  steps: 938,
  fraction: 0.744,
  end: NOW + 99.2,
  last_seen: NOW - 0.8,
  rate: 5420,
  peak: 9300,
};

export type Point = [x: number, y: number];

/** Lines by their keys; `at` is the index of the first point. */
export type Lines = Record<string, { at?: number; points: Point[] }>;

interface Parts extends Partial<Message> {
  lines?: Lines;
  numbers?: Partial<Record<Column, number>>[];
}

/** An update with these parts; the others are empty. */
export function delta(n: number, { lines = {}, numbers = [], ...parts }: Parts = {}): Delta {
  const points = Object.values(lines).flatMap((line) => line.points.flat());
  const rows = numbers.flatMap((row) => COLUMNS.map((name) => row[name] ?? Number.NaN));
  // The type of Object.entries does not keep the keys, and a test may use any.
  const series = Object.entries(lines).map(([key, line]): SeriesUpdate => {
    return [key as SeriesKey, line.at ?? 0, line.points.length];
  });
  return {
    message: { n, full: false, now: NOW, series, rows: numbers.length, logs: [], dropped: 0, ...parts },
    points: Float32Array.from(points),
    rows: Float32Array.from(rows),
  };
}

/** A full message. */
export function full(n: number, parts: Parts = {}): Delta {
  return delta(n, { full: true, run: RUN, state: STATE, progress: PROGRESS, ...parts });
}

/** A message as the answer of the route `view`. */
export function view({ message, points }: Delta, more = false): View {
  const packed = btoa(String.fromCharCode(...new Uint8Array(points.buffer)));
  return { page: "p", message, buffers: [packed, ""], behind: 0, damaged: 0, more };
}

export function info(rank: number, fields: Partial<WorkerInfo> = {}): WorkerInfo {
  const usual = { host: `wn${rank + 3}`, pid: 40 + rank, device: "CPU", state: "training", message: "", cores: 8 };
  return { rank, ...usual, ...fields };
}
