/** Keeps the list of runs up to date. */

import { type ISignal, Signal } from "@lumino/signaling";
import { type Api, ApiError } from "../api";
import { MAX_PAGE_SIZE, type RunPage, type RunRow, type SearchRow } from "../generated";
import { messageOf } from "../polling";
import { PolledFeed, type WatchedFeed } from "./polledfeed";
import { RunList } from "./runlist";

/** The first page is small, so that there is soon something to see; the others are large. */
const FIRST_PAGE_SIZE = 50;

/** Number of the newest runs that are kept; a store may have more. */
const MAX_RUNS = 2000;

const SECOND = 1000;

/** Factors of the poll interval while no run is live, and while nobody watches the list. */
const IDLE_FACTOR = 3;
const UNWATCHED_FACTOR = 5;

/** The state of the connection to the server extension. */
export type Connection =
  | { kind: "loading" }
  | { kind: "ready" }
  | { kind: "disabled" | "unreachable" | "forbidden" | "failed"; message: string };

/** The list as the tabs use it. */
export interface ListFeed {
  readonly list: RunList;
  /** The list or the connection has changed. */
  readonly changed: ISignal<unknown, void>;
}

/** The list as the panel uses it; a failure of `refresh` shows in `connection`. */
export interface PanelFeed extends ListFeed, WatchedFeed {
  readonly connection: Connection;
  /** A run or a search that was listed as live has ended; not the trial of a search. */
  readonly ended: ISignal<unknown, RunRow | SearchRow>;
}

export class RunFeed extends PolledFeed implements PanelFeed {
  readonly list = new RunList();
  readonly ended = new Signal<this, RunRow | SearchRow>(this);
  connection: Connection = { kind: "loading" };
  private seconds = 2;
  private request: Promise<void> | null = null;

  constructor(private readonly api: Api) {
    super("runs", 2 * SECOND);
  }

  /** Sets the poll interval while a run is live and somebody watches. */
  setInterval(seconds: number): void {
    this.seconds = seconds;
    this.updateInterval();
  }

  /** One request at a time: callers share the one in progress. */
  protected override read(): Promise<void> {
    this.request ??= this.tick().finally(() => {
      this.request = null;
    });
    return this.request;
  }

  protected override get intervalMs(): number {
    const factor = (this.watchers ? 1 : UNWATCHED_FACTOR) * (this.list.liveWork().length ? 1 : IDLE_FACTOR);
    return this.seconds * SECOND * factor;
  }

  private async tick(): Promise<void> {
    try {
      await (this.list.incomplete ? this.readPages() : this.readChanges());
      this.setConnection({ kind: "ready" });
    } catch (error) {
      if (this.poll.isDisposed) return;
      this.setConnection(connectionAfter(error));
      throw error;
    } finally {
      this.updateInterval();
    }
  }

  private async readPages(): Promise<void> {
    while (this.list.incomplete) {
      const first = this.list.version === "";
      const cursor = this.list.next;
      const query = first ? { limit: FIRST_PAGE_SIZE } : { limit: MAX_PAGE_SIZE, ...(cursor !== null && { cursor }) };
      const page = await this.api.list(query);
      const full = !first && this.list.rows.size + page.runs.length >= MAX_RUNS;
      this.emit(this.list.addPage(full ? { ...page, next: null } : page));
    }
  }

  private async readChanges(): Promise<void> {
    try {
      let changes: RunPage | null;
      do {
        changes = await this.api.changes(this.list.version, MAX_PAGE_SIZE);
        if (changes) this.emit(this.list.applyChanges(changes));
      } while (changes?.more);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 410)) throw error;
      this.list.restart();
      await this.readPages();
    }
  }

  private emit(ended: (RunRow | SearchRow)[]): void {
    this.connection = { kind: "ready" };
    this.changed.emit();
    for (const run of ended) this.ended.emit(run);
  }

  private setConnection(connection: Connection): void {
    if (JSON.stringify(connection) === JSON.stringify(this.connection)) return;
    this.connection = connection;
    this.changed.emit();
  }
}

function connectionAfter(error: unknown): Connection {
  const message = messageOf(error);
  if (!(error instanceof ApiError)) return { kind: "failed", message };
  if (error.unreachable) return { kind: "unreachable", message };
  if (error.notEnabled) return { kind: "disabled", message };
  return { kind: error.status === 403 ? "forbidden" : "failed", message };
}
