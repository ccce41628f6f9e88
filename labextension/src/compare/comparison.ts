/** The runs of a comparison: polls the server for them while the page is visible. */

import { type Api, ApiError } from "../api";
import { Follower } from "../follower";
import type { RunDetails } from "../generated";
import { title } from "../panel/format";
import type { RunList } from "../panel/runlist";
import { sleep } from "../polling";
import type { Translation } from "../translation";
import { type LineStyle, lineStyle, MAX_RUNS } from "./linestyle";

/** Interval of the checks whether a hidden page has become visible. */
const VISIBLE_CHECK_MS = 250;

/** Upper bound of the poll interval while the server does not respond. */
const MAX_BACKOFF_SECONDS = 60;

export interface ComparedRun {
  readonly id: string;
  readonly style: LineStyle;
  readonly follower: Follower;
  details: RunDetails | null;
  /** Why the run is not polled any more: it was deleted or cannot be read. Empty if there is no problem. */
  problem: string;
  shown: boolean;
}

export interface ComparisonOptions {
  api: Api;
  /** The panel's list, which is kept up to date anyway: has titles, and tells which runs still exist. */
  list: RunList;
  trans: Translation;
  /** The poll interval. */
  seconds(): number;
  /** Whether the page is visible; a hidden page is not polled for. */
  visible(): boolean;
  onChange(): void;
}

export class Comparison {
  readonly runs: ComparedRun[];
  /** Number of runs that are left out because there are too many. */
  readonly omitted: number;
  /** Why the last poll failed; empty if it did not. */
  error = "";
  private readonly aborter = new AbortController();
  private failures = 0;

  constructor(
    ids: readonly string[],
    private readonly options: ComparisonOptions,
  ) {
    const unique = [...new Set(ids)];
    this.omitted = Math.max(0, unique.length - MAX_RUNS);
    this.runs = unique.slice(0, MAX_RUNS).map((id, index) => ({
      id,
      style: lineStyle(index),
      follower: new Follower(options.api, id),
      details: null,
      problem: "",
      shown: true,
    }));
    void this.follow();
  }

  /** The current title of a run. */
  title({ id, details }: ComparedRun): string {
    const row = this.options.list.rows.get(id) ?? details;
    return row ? title(row) : id;
  }

  dispose(): void {
    this.aborter.abort();
  }

  private async follow(): Promise<void> {
    const { signal } = this.aborter;
    let wasHidden = false;
    while (!signal.aborted) {
      if (!this.options.visible()) {
        wasHidden = true;
        await sleep(VISIBLE_CHECK_MS, signal);
        continue;
      }
      if (wasHidden) this.options.onChange();
      wasHidden = false;
      // Browsers allow few connections to a server, so these requests do not wait for updates there.
      const outcomes = await Promise.all(this.runs.map((run) => this.poll(run)));
      if (signal.aborted) return;
      const [error] = outcomes.filter((outcome) => outcome instanceof Error);
      this.failures = error ? this.failures + 1 : 0;
      this.setError(error?.message ?? "");
      if (outcomes.includes("more")) continue;
      const wait = Math.min(this.options.seconds() * 2 ** this.failures, MAX_BACKOFF_SECONDS);
      await sleep(1000 * wait, signal);
    }
  }

  /** Polls for one run. An error in the result is temporary; a permanent one becomes the run's `problem`. */
  private async poll(run: ComparedRun): Promise<"more" | "done" | Error> {
    if (run.problem) return "done";
    const { signal } = this.aborter;
    try {
      if (this.isStale(run)) {
        run.details = await this.options.api.run(run.id, signal);
        this.options.onChange();
      }
      // A LOST run may be live again: somebody has attached a kernel to it.
      if (run.follower.done && !this.options.list.rows.get(run.id)?.live) return "done";
      const { lastSeen } = run.follower.model;
      const more = await run.follower.poll(0, signal);
      if (run.follower.model.lastSeen !== lastSeen) this.options.onChange();
      return more ? "more" : "done";
    } catch (error) {
      if (!(error instanceof ApiError) || !error.fromExtension || (error.status !== 404 && error.status !== 409)) {
        return error instanceof Error ? error : new Error(String(error));
      }
      run.problem = this.describe(error, run);
      this.options.onChange();
      return "done";
    }
  }

  /** Whether the details are missing, or older than the end of the run, or the run is not listed any more. */
  private isStale({ id, details, follower }: ComparedRun): boolean {
    if (!details) return true;
    if (details.live && follower.model.over) return true;
    const { list } = this.options;
    return !list.incomplete && list.rows.size >= list.total && !list.rows.has(id);
  }

  private describe(error: ApiError, run: ComparedRun): string {
    const { trans } = this.options;
    if (error.status === 409) return trans.__("It cannot be read: %1", error.message);
    return run.details
      ? trans.__("It was deleted. Its last known state is shown.")
      : trans.__("There is no such run in the store.");
  }

  private setError(message: string): void {
    if (this.error === message) return;
    this.error = message;
    this.options.onChange();
  }
}
