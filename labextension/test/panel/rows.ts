/** Rows and answers for the tests, as the server gives them. */

import type { Row, Run, Runs, UnreadableRun } from "../../src/api";

export const NOW = 1_795_255_200;

/** A run that goes on; `id` "r3" was begun three minutes ago. */
export function run(id: string, fields: Partial<Run> = {}): Run {
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
    cell: "c",
    failure: null,
    epoch: 2,
    epochs: 5,
    step: 10,
    steps: 100,
    fraction: 0.42,
    remaining: 133,
    metrics: {},
    loss: 0.13,
    spark: [1, 0.5, 0.13],
    heard: NOW,
    ...fields,
  };
}

/** One that has ended after a minute. */
export function finished(id: string, fields: Partial<Run> = {}): Run {
  const made = run(id, { state: "FINISHED", live: false, fraction: 1, remaining: null, epoch: 5, ...fields });
  return { ...made, ended: fields.ended ?? made.created + 60 };
}

export function unreadable(id: string): UnreadableRun {
  return { id, problem: "run.json is damaged", created: NOW, live: false };
}

/** An answer of the list. */
export function answer(version: string, runs: Row[], fields: Partial<Runs> = {}): Runs {
  const live = runs.filter((row) => row.live).length;
  return { version, runs, total: runs.length, live, next: null, removed: [], more: false, store: "/data", ...fields };
}
