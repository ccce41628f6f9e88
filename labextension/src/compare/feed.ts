/** The runs that are compared: asks the server for them while they are seen, and knows what became of each. */

import { type Api, ApiError, type RunDetails } from "../api";
import { Follower, pause } from "../follow";
import { type RunList, readable } from "../panel/runlist";
import { title } from "../panel/words";
import type { Translation } from "../translation";
import { type Look, look, MOST_RUNS } from "./look";

/** How soon it is looked again whether the page is seen. */
const SEEN_MS = 250;

/** The longest that a server that does not answer is left alone, in seconds. */
const BACKOFF_SECONDS = 60;

/** What a comparison shows of a run. */
export interface Compared {
  readonly id: string;
  readonly look: Look;
  readonly follower: Follower;
  details: RunDetails | null;
  /** What is asked for no more, and why: it was deleted, or cannot be read. Empty while all is well. */
  problem: string;
  /** The reader wants to see its lines. */
  shown: boolean;
}

export interface ComparisonOptions {
  api: Api;
  /** What the panel knows, and asks for anyway: titles, and which runs there are. */
  list: RunList;
  trans: Translation;
  seconds(): number;
  /** Whether somebody can see the page: nothing is asked while not. */
  seen(): boolean;
  changed(): void;
}

export class Comparison {
  readonly runs: Compared[];
  /** Runs that were asked for and are left out, as there are too many. */
  readonly left: number;
  /** Why the newest question has no answer; empty while the server answers. */
  trouble = "";
  private readonly over = new AbortController();
  private failures = 0;

  constructor(
    ids: readonly string[],
    private readonly options: ComparisonOptions,
  ) {
    const each = [...new Set(ids)];
    this.left = Math.max(0, each.length - MOST_RUNS);
    this.runs = each.slice(0, MOST_RUNS).map((id, place) => ({
      id,
      look: look(place),
      follower: new Follower(options.api, id),
      details: null,
      problem: "",
      shown: true,
    }));
    void this.follow();
  }

  /** What a reader calls the run just now. */
  name({ id, details }: Compared): string {
    const row = this.options.list.rows.get(id) ?? details;
    return row ? title(row) : id;
  }

  dispose(): void {
    this.over.abort();
  }

  private async follow(): Promise<void> {
    const { signal } = this.over;
    let unseen = false;
    while (!signal.aborted) {
      if (!this.options.seen()) {
        unseen = true;
        await pause(SEEN_MS, signal);
        continue;
      }
      if (unseen) this.options.changed();
      unseen = false;
      // Several pages may be open, and browsers have few connections to a server: none of these questions waits.
      const outcomes = await Promise.all(this.runs.map((run) => this.ask(run)));
      if (signal.aborted) return;
      const troubles = outcomes.filter((outcome) => outcome instanceof Error);
      this.failures = troubles.length ? this.failures + 1 : 0;
      this.setTrouble(troubles[0]?.message ?? "");
      if (outcomes.includes("more")) continue;
      const wait = Math.min(this.options.seconds() * 2 ** this.failures, BACKOFF_SECONDS);
      await pause(1000 * wait, signal);
    }
  }

  /** Asks for what is not known of a run. An error is one that may pass. */
  private async ask(run: Compared): Promise<"more" | "enough" | Error> {
    if (run.problem) return "enough";
    const { signal } = this.over;
    try {
      if (this.stale(run)) {
        const details = await this.options.api.run(run.id, signal);
        if (!readable(details)) throw new ApiError(details.problem, 409, true);
        run.details = details as RunDetails;
        this.options.changed();
      }
      // A run that was lost may go on: somebody has attached a kernel to it.
      if (run.follower.done && !this.options.list.rows.get(run.id)?.live) return "enough";
      const { told } = run.follower.model;
      const more = await run.follower.ask(0, signal);
      if (run.follower.model.told !== told) this.options.changed();
      return more ? "more" : "enough";
    } catch (error) {
      if (!(error instanceof ApiError) || !error.ours || (error.status !== 404 && error.status !== 409)) {
        return error instanceof Error ? error : new Error(String(error));
      }
      run.problem = this.lost(run, error);
      this.options.changed();
      return "enough";
    }
  }

  /** Whether the details are missing, or older than the run's end, or the panel does not see the run any more. */
  private stale({ id, details, follower }: Compared): boolean {
    if (!details) return true;
    if (details.live && follower.model.over) return true;
    const { list } = this.options;
    return !list.incomplete && list.rows.size >= list.total && !list.rows.has(id);
  }

  private lost(run: Compared, error: ApiError): string {
    const { trans } = this.options;
    if (error.status === 409) return trans.__("It cannot be read: %1", error.message);
    return run.details
      ? trans.__("It was deleted: this is how it was.")
      : trans.__("There is no such run in the store any more.");
  }

  private setTrouble(message: string): void {
    if (this.trouble === message) return;
    this.trouble = message;
    this.options.changed();
  }
}
