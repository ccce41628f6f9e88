/** Messages for the tests, as the kernel packs them. */

import { COLUMNS, type Column, type Message } from "../src/view/messages";
import type { Delta } from "../src/view/model";

export const NOW = 1_795_255_200;

export const RUN = { id: "r1", name: "digits", strategy: "allreduce", workers: 2, cluster: "hdi-prod", waiting: false };

export const STATE = {
  state: "RUNNING" as const,
  message: "",
  failure: null,
  ready: null,
  needed: null,
  created: NOW - 140,
  started: NOW - 133,
  ended: null,
  fetching: "",
};

export const PROGRESS = {
  fit: 0,
  epoch: 7,
  epochs: 10,
  step: 412,
  steps: 938,
  fraction: 0.744,
  remaining: 100,
  heard: NOW - 0.8,
  rate: 5420,
  peak: 9300,
};

interface Parts extends Partial<Message> {
  lines?: Record<string, { at?: number; points: [number, number][] }>;
  numbers?: Partial<Record<Column, number>>[];
}

/** A delta of what is given; the rest is empty. */
export function delta(n: number, { lines = {}, numbers = [], ...parts }: Parts = {}): Delta {
  const points = Object.values(lines).flatMap((line) => line.points.flat());
  const rows = numbers.flatMap((row) => COLUMNS.map((name) => row[name] ?? Number.NaN));
  return {
    message: {
      n,
      full: false,
      now: NOW,
      series: Object.entries(lines).map(([key, line]) => [key, line.at ?? 0, line.points.length]),
      rows: numbers.length,
      logs: [],
      dropped: 0,
      ...parts,
    },
    points: Float32Array.from(points),
    rows: Float32Array.from(rows),
  };
}

/** A first, full message. */
export function full(n: number, parts: Parts = {}): Delta {
  return delta(n, { full: true, run: RUN, state: STATE, progress: PROGRESS, ...parts });
}

export function facts(rank: number, more: object = {}) {
  const usual = { host: `wn${rank + 3}`, pid: 40 + rank, device: "CPU", state: "training", message: "", cores: 8 };
  return { rank, ...usual, ...more };
}
