// Generated from ddl_magics/server/openapi.yaml by `npm run types`: change that, not this.
// biome-ignore-all format: generated

export type Answer =
  Error | State | Runs | UnreadableRun | Run | RunDetails | Names | View | Replay | Events | Logs | Stop;
/**
 * LOST where its kernel is gone
 */
export type State =
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
export type RunDetails = Run & {
  /**
   * the cell's source in `cell`, and its options; secrets are masked
   */
  spec: {
    [k: string]: unknown;
  };
  /**
   * why it failed: rank (-1: the job), host, kind, message, traceback
   */
  cause: {
    [k: string]: unknown;
  } | null;
  /**
   * of the notebook: ddl_magics, python, platform, host
   */
  environment: {
    [k: string]: unknown;
  };
  /**
   * of the cluster: python, tensorflow, keras, spark; empty before they are loaded
   */
  versions: {
    [k: string]: unknown;
  };
  /**
   * where its driver is found; empty where it ends with its kernel
   */
  place: {
    [k: string]: unknown;
  };
  /**
   * the kernel's process
   */
  owner: {
    host?: string | null;
    pid?: number | null;
    heartbeat?: number | null;
    alive?: boolean;
  };
  files: {
    name?: string;
    size?: number;
  }[];
  /**
   * bytes of its events
   */
  size: number;
  /**
   * somebody has asked its kernel to stop it
   */
  stop_requested: boolean;
  /**
   * what became of the newest stop without a kernel, by this server
   */
  stop: Stop | null;
};

export interface Error {
  message: string;
  reason?: string | null;
}
export interface Runs {
  /**
   * for `since`
   */
  version: string;
  /**
   * runs of the store
   */
  total: number;
  /**
   * runs of the store that go on
   */
  live: number;
  runs: (Run | UnreadableRun)[];
  /**
   * for `cursor`; null with the last page
   */
  next: string | null;
  /**
   * ids
   */
  removed: string[];
  /**
   * more has changed: ask with the new `version` at once
   */
  more: boolean;
  /**
   * the folder of the runs on the server's machine
   */
  store: string;
}
export interface Run {
  id: string;
  problem: null;
  /**
   * the variable in the notebook
   */
  name: string;
  /**
   * what a reader calls it; empty where nobody has given one
   */
  title: string;
  labels: string[];
  state: State;
  /**
   * it goes on
   */
  live: boolean;
  created: number;
  ended: number | null;
  /**
   * its path; empty where it is not known
   */
  notebook: string;
  /**
   * of its cell in the notebook; empty where it is not known
   */
  cell_id: string;
  /**
   * in words
   */
  cluster: string;
  /**
   * its driver may outlive its kernel
   */
  attachable: boolean;
  strategy: string | null;
  rule: string | null;
  workers: number | null;
  /**
   * equal for equal sources of the cell
   */
  cell: string;
  /**
   * in a line
   */
  failure: string | null;
  /**
   * done of the current fit
   */
  epoch: number;
  epochs: number | null;
  /**
   * done of the current epoch
   */
  step: number;
  /**
   * of an epoch
   */
  steps: number | null;
  /**
   * done of the current fit, 0 to 1
   */
  fraction: number | null;
  /**
   * seconds that the fit will still take, counted from `heard`
   */
  remaining: number | null;
  /**
   * of the newest epoch
   */
  metrics: {
    [k: string]: number | null;
  };
  /**
   * the newest
   */
  loss: number | null;
  /**
   * the loss over the run, for a sparkline
   */
  spark: number[];
  /**
   * time of the newest loss
   */
  heard: number | null;
}
/**
 * A folder of the store that this version cannot read
 */
export interface UnreadableRun {
  id: string;
  /**
   * why
   */
  problem: string;
  created: number;
  live: false;
}
export interface Stop {
  /**
   * asked: its kernel will end it. ended: it had ended before. stopped: it has ended now. stopping: a process is at
   * it. nothing: its kernel is gone, and nothing of it runs. runs: its kernel is gone, it may train on, and
   * `how` says how to end it.
   *
   */
  outcome: "asked" | "ended" | "stopped" | "stopping" | "nothing" | "runs";
  /**
   * what was done
   */
  message: string;
  /**
   * what a person can do, where something is left; else empty
   */
  how: string;
}
export interface Names {
  /**
   * a line; empty to take it away
   */
  title?: string;
  labels?: string[];
}
export interface View {
  page: string;
  /**
   * `Message` of labextension/src/view/messages.ts
   */
  message: {
    [k: string]: unknown;
  };
  /**
   * base64 of the message's buffers, both float32: points and rows
   */
  buffers: string[];
  behind: number;
  /**
   * lines that are no events
   */
  damaged: number;
  more: boolean;
}
export interface Replay {
  moments: {
    /**
     * since the run was created
     */
    seconds: number;
    /**
     * base64 of a row a worker, float32, `COLUMNS` of messages.ts
     */
    rows: string;
  }[];
  /**
   * the share of the events that has not been read
   */
  behind: number;
}
export interface Events {
  events: {
    [k: string]: unknown;
  }[];
  /**
   * for `after`
   */
  last: number;
  more: boolean;
  state: State;
  live: boolean;
  /**
   * lines among them that are no events
   */
  damaged: number;
}
export interface Logs {
  /**
   * [time, rank, level, text] each; level is out, err, info or warning; text has no control characters
   */
  lines: unknown[][];
  offset: number;
  /**
   * where this part begins
   */
  begin: number;
  more: boolean;
}
