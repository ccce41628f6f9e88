/** Keeps the list of runs up to date: polls while somebody looks, backs off where nobody answers. */

import { Poll } from "@lumino/polling";
import { Signal } from "@lumino/signaling";
import { type Api, ApiError, type Run, type Runs } from "../api";
import { RunList } from "./runlist";

/** The first page is small, so that there is something to look at; the others make few requests. */
const FIRST_PAGE = 50;
const PAGE = 200;

/** So many of the newest runs are kept; a store may hold any number. */
const MOST_RUNS = 2000;

const SECOND = 1000;

/** What the list waits longer for while nothing in it goes on, and while it cannot be seen. */
const IDLE_FACTOR = 3;
const UNSEEN_FACTOR = 5;

/** The longest that a server that does not answer is left alone. */
const BACKOFF_SECONDS = 60;

/** How it stands between this page and the server. */
export type Link =
  | { kind: "loading" }
  | { kind: "ready" }
  /** `off`: our server extension is not enabled; `gone`: no server answers. */
  | { kind: "off" | "gone" | "forbidden" | "failed"; message: string };

export class RunFeed {
  readonly list = new RunList();
  /** Something of the list or the link is not what it was. */
  readonly changed = new Signal<this, void>(this);
  /** A run has ended that this page saw going on. */
  readonly ended = new Signal<this, Run>(this);
  private readonly poll: Poll<void, ApiError>;
  private _link: Link = { kind: "loading" };
  private watchers = 0;
  private seconds = 2;
  private asking: Promise<void> | null = null;

  constructor(private readonly api: Api) {
    this.poll = new Poll<void, ApiError>({
      auto: false,
      factory: () => this.ask(),
      frequency: { interval: this.seconds * SECOND, backoff: true, max: BACKOFF_SECONDS * SECOND },
      standby: () => document.hidden,
      name: "ddl-magics:runs",
    });
  }

  get link(): Link {
    return this._link;
  }

  /** Asks now and from then on. */
  start(): void {
    void this.poll.start().catch(() => {});
  }

  /** Asks now. What comes of it is in `link`. */
  refresh(): void {
    void this.poll.refresh().catch(() => {});
  }

  /** Seconds between two looks at what goes on. */
  setInterval(seconds: number): void {
    this.seconds = seconds;
    this.pace();
  }

  /** Somebody sees the list from now on; call what is returned when they do not. */
  watch(): () => void {
    this.watchers += 1;
    this.pace();
    this.refresh();
    let watching = true;
    return () => {
      if (watching) this.watchers -= 1;
      watching = false;
      this.pace();
    };
  }

  dispose(): void {
    this.poll.dispose();
    Signal.clearData(this);
  }

  /** One question at a time: who asks meanwhile waits for the same answer. */
  private ask(): Promise<void> {
    this.asking ??= this.tick().finally(() => {
      this.asking = null;
    });
    return this.asking;
  }

  private async tick(): Promise<void> {
    try {
      await (this.list.incomplete ? this.load() : this.update());
      this.setLink({ kind: "ready" });
    } catch (error) {
      if (this.poll.isDisposed) return;
      this.setLink(trouble(error));
      throw error;
    } finally {
      this.pace();
    }
  }

  private async load(): Promise<void> {
    while (this.list.incomplete) {
      const first = this.list.version === "";
      const cursor = this.list.next ?? undefined;
      const answer = await this.api.list(first ? { limit: FIRST_PAGE } : { limit: PAGE, ...(cursor && { cursor }) });
      const enough = !first && this.list.rows.size + answer.runs.length >= MOST_RUNS;
      this.tell(this.list.page(enough ? { ...answer, next: null } : answer));
    }
  }

  private async update(): Promise<void> {
    try {
      let answer: Runs | null;
      do {
        answer = await this.api.changes(this.list.version, PAGE);
        if (answer) this.tell(this.list.changes(answer));
      } while (answer?.more);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 410)) throw error;
      this.list.restart();
      await this.load();
    }
  }

  private tell(ended: Run[]): void {
    this._link = { kind: "ready" };
    this.changed.emit();
    for (const run of ended) this.ended.emit(run);
  }

  private setLink(link: Link): void {
    if (JSON.stringify(link) === JSON.stringify(this._link)) return;
    this._link = link;
    this.changed.emit();
  }

  private pace(): void {
    if (this.poll.isDisposed) return;
    const factor = (this.watchers ? 1 : UNSEEN_FACTOR) * (this.list.live().length ? 1 : IDLE_FACTOR);
    const interval = this.seconds * SECOND * factor;
    if (this.poll.frequency.interval === interval) return;
    this.poll.frequency = { interval, backoff: true, max: Math.max(interval, BACKOFF_SECONDS * SECOND) };
  }
}

function trouble(error: unknown): Link {
  const message = error instanceof Error ? error.message : String(error);
  if (!(error instanceof ApiError)) return { kind: "failed", message };
  if (error.gone) return { kind: "gone", message };
  if (error.notEnabled) return { kind: "off", message };
  return { kind: error.status === 403 ? "forbidden" : "failed", message };
}
