/** Rows, details and pages as the server sends them. */

import type { Row } from "../../src/api";
import type { RunDetails, RunPage, RunRow, SearchRow, UnreadableRun } from "../../src/generated";
import { NOW } from "../messages";

export { NOW };

/** A live run; run "r3" was created three minutes ago. */
export function run(id: string, fields: Partial<RunRow> = {}): RunRow {
  return {
    id,
    problem: null,
    name: "digits",
    title: "",
    labels: [],
    state: "RUNNING",
    live: true,
    created: NOW - 60 * Number(id.slice(1) || 0),
    ended: null,
    notebook: "/home/me/work/a.ipynb",
    cell_id: "",
    cluster: "this machine",
    attachable: false,
    strategy: "allreduce",
    rule: null,
    workers: 4,
    min_workers: null,
    parent: null,
    trial: null,
    trial_state: null,
    trial_value: null,
    trial_reason: "",
    parameters: {},
    cell_hash: "c",
    message: "",
    failure: null,
    epoch: 2,
    epochs: 5,
    step: 10,
    steps: 100,
    fraction: 0.42,
    remaining: 133,
    metrics: {},
    loss: 0.13,
    sparkline: [1, 0.5, 0.13],
    last_seen: NOW,
    ...fields,
  };
}

/** A live search of 40 trials. */
export function search(id: string, fields: Partial<SearchRow> = {}): SearchRow {
  return {
    id,
    name: "tuned",
    state: "RUNNING",
    live: true,
    message: "",
    created: NOW - 372,
    ended: null,
    notebook: "/home/me/work/a.ipynb",
    cluster: "this machine",
    workers: 1,
    search: "tpe",
    objective: "val_accuracy",
    planned: 40,
    done: 34,
    best: 0.9573,
    best_trial: 7,
    remaining: 65,
    ...fields,
  };
}

/** The run of a trial of the search `parent`. */
export function trial(id: string, number: number, parent: string, fields: Partial<RunRow> = {}): RunRow {
  const parameters = { lr: "0.00531234", act: "relu" };
  return finished(id, { name: `tuned_${number}`, parent, trial: number, parameters, ...fields });
}

/** A run that finished after a minute. */
export function finished(id: string, fields: Partial<RunRow> = {}): RunRow {
  const row = run(id, { state: "FINISHED", live: false, fraction: 1, remaining: null, epoch: 5, ...fields });
  return { ...row, ended: fields.ended ?? row.created + 60 };
}

/** The details of a run that finished. */
export function details(id: string, fields: Partial<RunDetails> = {}): RunDetails {
  return {
    ...finished(id),
    note: "",
    provenance: [],
    spec: {},
    cause: null,
    environment: {},
    versions: {},
    driver_address: {},
    owner: { host: null, pid: null, heartbeat: null, alive: false },
    cell_files: [],
    files: [],
    size: 10,
    stop_requested: false,
    stop: null,
    ...fields,
  };
}

export function unreadable(id: string): UnreadableRun {
  return { id, problem: "run.json is damaged", created: NOW, live: false };
}

/** One page of the list, or changes. */
export function page(version: string, runs: Row[], fields: Partial<RunPage> = {}): RunPage {
  const live = runs.filter((row) => row.live).length;
  const rest = { next: null, removed: [], more: false, store: "/data" };
  return { version, runs, searches: [], total: runs.length, live, ...rest, ...fields };
}
