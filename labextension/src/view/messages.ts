// Generated from ddl_magics/dashboard/schema.py by `npm run types`: change that, not this.
// biome-ignore-all format: generated

export type StateName =
  | "QUEUED"
  | "PREFLIGHT"
  | "SUBMITTED"
  | "WAITING"
  | "RUNNING"
  | "STOPPING"
  | "STOPPED"
  | "FINISHED"
  | "FAILED"
  | "LOST";
/**
 * why the run failed: the one root cause
 */
export type Failure = {
  rank: number;
  host: string;
  kind: "error" | "exit" | "signal" | "nan" | "diverged" | "peer" | "lost" | "spark";
  message: string;
  traceback: string;
} | null;
/**
 * key, index of the first point sent (what the page has from there on is replaced), points
 *
 * @minItems 3
 * @maxItems 3
 */
export type SeriesPart = [string, number, number];
/**
 * rank (-1: the job), level, text
 *
 * @minItems 3
 * @maxItems 3
 */
export type LogLine = [number, LogLevel, string];
export type LogLevel = "out" | "err" | "info" | "warning";
/**
 * This interface was referenced by `Message`'s JSON-Schema
 * via the `definition` "Column".
 */
export type Column =
  | "rank"
  | "gpu"
  | "gpu_memory"
  | "gpu_memory_total"
  | "cpu"
  | "memory"
  | "compute"
  | "waiting"
  | "network"
  | "summing"
  | "rate"
  | "staleness"
  | "staleness_max"
  | "commits";

export interface Message {
  /**
   * 1 more than that of the message before; a page that sees a gap asks for all
   */
  n: number;
  /**
   * everything: what the page had is replaced
   */
  full: boolean;
  /**
   * the kernel's clock
   */
  now: number;
  run?: RunFacts;
  state?: RunState;
  progress?: RunProgress;
  /**
   * newest value of each metric
   */
  latest?: {
    [k: string]: number;
  };
  workers?: WorkerFacts[];
  series: SeriesPart[];
  rows: number;
  logs: LogLine[];
  /**
   * log lines left out since the last message
   */
  dropped: number;
}
export interface RunFacts {
  id: string;
  name: string;
  /**
   * allreduce, ps or single
   */
  strategy: string;
  workers: number;
  /**
   * where it runs, in words
   */
  cluster: string;
  /**
   * the cell waits for the run: the notebook's stop button stops it
   */
  waiting: boolean;
}
export interface RunState {
  state: StateName;
  message: string;
  failure: Failure;
  ready: number | null;
  needed: number | null;
  /**
   * seconds since the epoch, as all times
   */
  created: number | null;
  /**
   * when it first was RUNNING
   */
  started: number | null;
  ended: number | null;
  /**
   * the file that is on its way from the cluster, in words; empty when none is
   */
  fetching: string;
}
export interface RunProgress {
  /**
   * -1 before the first
   */
  fit: number;
  /**
   * from 0; equal to epochs at the end
   */
  epoch: number;
  epochs: number;
  /**
   * steps done in the epoch
   */
  step: number;
  steps: number | null;
  /**
   * of the current fit, 0 to 1
   */
  fraction: number;
  /**
   * seconds, at the time `heard`
   */
  remaining: number | null;
  /**
   * when the newest events came
   */
  heard: number | null;
  /**
   * samples/s of the job
   */
  rate: number | null;
  /**
   * the highest rate so far
   */
  peak: number | null;
}
export interface WorkerFacts {
  rank: number;
  host: string;
  pid: number;
  device: string;
  state: string;
  message: string;
  cores: number;
}

/** The columns of a row, in order. */
export const COLUMNS: readonly Column[] = ["rank","gpu","gpu_memory","gpu_memory_total","cpu","memory","compute","waiting","network","summing","rate","staleness","staleness_max","commits"];
