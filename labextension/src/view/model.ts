/** What a page knows of a run: built from a full message and the updates after it. No drawing here. */

import {
  COLUMNS,
  type Column,
  LEFT,
  type LogLine,
  type Message,
  type MonitorView,
  type RunInfo,
  type RunProgress,
  type RunState,
  type SeriesKey,
  TERMINAL_STATES,
  type WorkerInfo,
} from "../generated";

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

/** A rank, with its newest numbers (NaN if unknown). */
export interface Worker {
  info: WorkerInfo;
  numbers: Numbers;
}

/** Whether the others train on without a rank. */
export const hasLeft = ({ info }: Worker) => info.state === LEFT;

/** Maximum number of printed lines that a page keeps. */
export const MAX_LOG_LINES = 2000;

export const TERMINAL: ReadonlySet<string> = new Set(TERMINAL_STATES);

export class RunModel {
  run: RunInfo | null = null;
  state: RunState | null = null;
  progress: RunProgress | null = null;
  latest: Record<string, number> = {};
  /** What a monitor has counted; null of a training. */
  monitor: MonitorView | null = null;
  readonly workers = new Map<number, Worker>();
  readonly lines = new Map<SeriesKey, Line>();
  logs: LogLine[] = [];
  /** Number of log lines that have arrived; `logs` holds the newest of them. */
  logged = 0;
  /** Changes with each full message. */
  generation = 0;
  /** When the kernel sent the last message, by its clock. */
  lastSeen = 0;
  private n = 0;
  private clockOffset = 0;

  /** Applies a message. Returns false if a message before it is missing: then a full message is needed. */
  apply({ message, points, rows }: Delta): boolean {
    if (message.full) this.clear();
    else if (!this.run || message.n !== this.n + 1) return false;
    this.n = message.n;
    this.lastSeen = message.now;
    this.clockOffset = message.now - Date.now() / 1000;
    this.run = message.run ?? this.run;
    this.state = message.state ?? this.state;
    this.progress = message.progress ?? this.progress;
    this.latest = message.latest ?? this.latest;
    this.monitor = message.monitor ?? this.monitor;
    for (const info of message.workers ?? []) this.worker(info.rank).info = info;
    this.applySeries(message, points);
    this.applyRows(message.rows, rows);
    this.applyLogs(message);
    return true;
  }

  /** The current time by the kernel's clock, in seconds since the epoch. */
  now(): number {
    return Date.now() / 1000 + this.clockOffset;
  }

  /** Whether the run has ended. */
  get over(): boolean {
    return TERMINAL.has(this.state?.state ?? "");
  }

  /** The workers in order of rank. */
  ranks(): Worker[] {
    return [...this.workers.values()].sort((a, b) => a.info.rank - b.info.rank);
  }

  /** The numbers of its ranks are below this one: one that joins has a new number. */
  get rankEnd(): number {
    return Math.max(this.run?.workers ?? 0, ...[...this.workers.keys()].map((rank) => rank + 1));
  }

  line(key: SeriesKey): Line | undefined {
    return this.lines.get(key);
  }

  /** Names of the metrics that have a line, in order of appearance, without those of the validation. */
  metrics(): string[] {
    const keys = [...this.lines.keys()].filter((key) => key.startsWith("metric:"));
    return [...new Set(keys.map((key) => key.slice("metric:".length).replace(/^val_/, "")))];
  }

  /**
   * The exact values of a metric at the ends of epochs, once there are two. They are the line of a chart then: Keras'
   * running values start anew in each epoch.
   */
  exactLine(name: string): Line | undefined {
    const line = this.line(`epochs:${name}`);
    return line && line.x.length > 1 ? line : undefined;
  }

  /** Seconds from the creation of the run to its first step: waiting is not part of the training. */
  get trainingBegin(): number {
    const { created, started } = this.state ?? {};
    return created != null && started != null ? Math.max(0, started - created) : 0;
  }

  /** Applies `count` rows of `COLUMNS`. */
  applyRows(count: number, rows: Float32Array): void {
    for (let row = 0; row < count; row++) {
      const values = rows.subarray(row * COLUMNS.length, (row + 1) * COLUMNS.length);
      const { numbers } = this.worker(values[COLUMNS.indexOf("rank")] ?? Number.NaN);
      COLUMNS.forEach((name, i) => {
        numbers[name] = values[i] ?? Number.NaN;
      });
    }
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
      const info = { rank, host: "", pid: 0, device: "", state: "", message: "", cores: 0 };
      // The type of Object.fromEntries does not keep the keys.
      const numbers = Object.fromEntries(COLUMNS.map((name) => [name, Number.NaN])) as Numbers;
      worker = { info, numbers };
      this.workers.set(rank, worker);
    }
    return worker;
  }

  private applySeries(message: Message, points: Float32Array): void {
    let at = 0;
    for (const [key, start, count] of message.series) {
      const line = this.lines.get(key) ?? { x: [], y: [] };
      this.lines.set(key, line);
      line.x.length = start;
      line.y.length = start;
      for (let i = 0; i < count; i++, at += 2) {
        const [x = Number.NaN, y = Number.NaN] = points.subarray(at, at + 2);
        line.x.push(x);
        line.y.push(Number.isFinite(y) ? y : null);
      }
    }
  }

  private applyLogs(message: Message): void {
    const lines = message.logs;
    if (message.dropped) {
      lines.unshift([-1, "info", `… ${message.dropped} lines are not shown; run.logs() has all of them`]);
    }
    this.logs.push(...lines);
    this.logged += lines.length;
    if (this.logs.length > MAX_LOG_LINES) this.logs.splice(0, this.logs.length - MAX_LOG_LINES);
  }
}

/** A message with its buffers as numbers. */
export function unpack(message: Message, buffers: readonly (ArrayBuffer | ArrayBufferView)[]): Delta {
  const [points, rows] = buffers.map(floats);
  return { message, points: points ?? new Float32Array(), rows: rows ?? new Float32Array() };
}

/** A buffer as float32. It is copied, because its offset may not be a multiple of 4. */
export function floats(buffer: ArrayBuffer | ArrayBufferView): Float32Array {
  const bytes = ArrayBuffer.isView(buffer)
    ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
    : new Uint8Array(buffer);
  return new Float32Array(bytes.slice().buffer);
}
