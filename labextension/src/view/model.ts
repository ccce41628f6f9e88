/** What a page knows of a run: built from a first, full message and the deltas after it. No drawing here. */

import {
  COLUMNS,
  type Column,
  type LogLine,
  type Message,
  type RunFacts,
  type RunProgress,
  type RunState,
  type WorkerFacts,
} from "./messages";

/** A message with its buffers as numbers: x, y pairs of all series, and rows of `COLUMNS`. */
export interface Delta {
  message: Message;
  points: Float32Array;
  rows: Float32Array;
}

/** A line of a chart. Unknown values are null. */
export interface Line {
  x: number[];
  y: (number | null)[];
}

export type Numbers = Record<Column, number>;

/** A rank: what it is, and its newest numbers (NaN where unknown). */
export interface Worker {
  facts: WorkerFacts;
  numbers: Numbers;
}

/** Lines that a page keeps of what the ranks printed. */
export const LOG_LINES = 2000;

const TERMINAL = new Set(["STOPPED", "FINISHED", "FAILED", "LOST"]);

export class RunModel {
  run: RunFacts | null = null;
  state: RunState | null = null;
  progress: RunProgress | null = null;
  latest: Record<string, number> = {};
  readonly workers = new Map<number, Worker>();
  readonly lines = new Map<string, Line>();
  logs: LogLine[] = [];
  /** Log lines ever taken; `logs` holds the newest of them. */
  logged = 0;
  /** Changes when everything was replaced. */
  generation = 0;
  /** When the last message came, by the kernel's clock. */
  told = 0;
  private n = 0;
  private skew = 0;

  /** Takes a message over. False: one before it is missing, and everything must be asked for. */
  apply({ message, points, rows }: Delta): boolean {
    if (message.full) this.clear();
    else if (!this.run || message.n !== this.n + 1) return false;
    this.n = message.n;
    this.told = message.now;
    this.skew = message.now - Date.now() / 1000;
    this.run = message.run ?? this.run;
    this.state = message.state ?? this.state;
    this.progress = message.progress ?? this.progress;
    this.latest = message.latest ?? this.latest;
    for (const facts of message.workers ?? []) this.worker(facts.rank).facts = facts;
    this.takeSeries(message, points);
    this.takeRows(message.rows, rows);
    this.takeLogs(message);
    return true;
  }

  /** Now, by the kernel's clock, in seconds. */
  now(): number {
    return Date.now() / 1000 + this.skew;
  }

  get over(): boolean {
    return TERMINAL.has(this.state?.state ?? "");
  }

  /** The ranks in order. */
  ranks(): Worker[] {
    return [...this.workers.values()].sort((a, b) => a.facts.rank - b.facts.rank);
  }

  line(key: string): Line | undefined {
    return this.lines.get(key);
  }

  /** Names of the metrics that have a line, validation's left out, in order of appearance. */
  metrics(): string[] {
    const names = [...this.lines.keys()].filter((key) => key.startsWith("metric:"));
    return [...new Set(names.map((key) => key.slice("metric:".length).replace(/^val_/, "")))];
  }

  private clear(): void {
    this.generation += 1;
    this.workers.clear();
    this.lines.clear();
    this.logs = [];
    this.logged = 0;
  }

  private worker(rank: number): Worker {
    let worker = this.workers.get(rank);
    if (!worker) {
      const facts = { rank, host: "", pid: 0, device: "", state: "", message: "", cores: 0 };
      worker = { facts, numbers: Object.fromEntries(COLUMNS.map((name) => [name, Number.NaN])) as Numbers };
      this.workers.set(rank, worker);
    }
    return worker;
  }

  private takeSeries(message: Message, points: Float32Array): void {
    let at = 0;
    for (const [key, start, count] of message.series) {
      const line = this.lines.get(key) ?? { x: [], y: [] };
      this.lines.set(key, line);
      line.x.length = start;
      line.y.length = start;
      for (let i = 0; i < count; i++, at += 2) {
        const y = points[at + 1] as number;
        line.x.push(points[at] as number);
        line.y.push(Number.isFinite(y) ? y : null);
      }
    }
  }

  /** The newest numbers of so many ranks. */
  takeRows(count: number, rows: Float32Array): void {
    for (let row = 0; row < count; row++) {
      const values = rows.subarray(row * COLUMNS.length, (row + 1) * COLUMNS.length);
      const { numbers } = this.worker(values[COLUMNS.indexOf("rank")] as number);
      COLUMNS.forEach((name, i) => {
        numbers[name] = values[i] as number;
      });
    }
  }

  private takeLogs(message: Message): void {
    const lines = message.logs;
    if (message.dropped) {
      const told = `… ${message.dropped} lines are left out here; run.logs() has all of them`;
      lines.unshift([-1, "info", told]);
    }
    this.logs.push(...lines);
    this.logged += lines.length;
    if (this.logs.length > LOG_LINES) this.logs.splice(0, this.logs.length - LOG_LINES);
  }
}

/** A message's buffers as numbers. They are copied: what a socket hands out need not lie on a multiple of 4. */
export function unpack(message: Message, buffers: readonly (ArrayBuffer | ArrayBufferView)[]): Delta {
  const [points, rows] = buffers.map(floats);
  return { message, points: points ?? new Float32Array(), rows: rows ?? new Float32Array() };
}

export function floats(buffer: ArrayBuffer | ArrayBufferView): Float32Array {
  const bytes = ArrayBuffer.isView(buffer)
    ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
    : new Uint8Array(buffer);
  return new Float32Array(bytes.slice().buffer);
}
