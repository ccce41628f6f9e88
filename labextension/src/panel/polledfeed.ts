/** A list that is kept up to date by polling the server, which backs off while it does not respond. */

import { Poll } from "@lumino/polling";
import { type ISignal, Signal } from "@lumino/signaling";

/** Upper bound of the poll interval while the server does not respond. */
const MAX_BACKOFF_MS = 60_000;

/** What is kept up to date while somebody watches it. */
export interface WatchedFeed {
  readonly changed: ISignal<unknown, void>;
  /** Polls now. */
  refresh(): void;
  /** Somebody watches, until the returned function is called. */
  watch(): () => void;
}

export abstract class PolledFeed implements WatchedFeed {
  readonly changed = new Signal<this, void>(this);
  protected readonly poll: Poll;
  protected watchers = 0;

  constructor(name: string, interval: number) {
    this.poll = new Poll({
      auto: false,
      factory: () => this.read(),
      frequency: { interval, backoff: true, max: MAX_BACKOFF_MS },
      standby: () => document.hidden || this.idle,
      name: `ddl-magics:${name}`,
    });
  }

  start(): void {
    void this.poll.start().catch(() => {});
  }

  refresh(): void {
    void this.poll.refresh().catch(() => {});
  }

  watch(): () => void {
    this.watchers += 1;
    this.updateInterval();
    this.start();
    this.refresh();
    let watching = true;
    return () => {
      if (watching) this.watchers -= 1;
      watching = false;
      this.updateInterval();
    };
  }

  dispose(): void {
    this.poll.dispose();
    Signal.clearData(this);
  }

  /** Whether there is no need to poll. */
  protected get idle(): boolean {
    return false;
  }

  protected abstract read(): Promise<void>;
  protected abstract get intervalMs(): number;

  protected updateInterval(): void {
    const interval = this.intervalMs;
    if (this.poll.isDisposed || this.poll.frequency.interval === interval) return;
    this.poll.frequency = { interval, backoff: true, max: Math.max(interval, MAX_BACKOFF_MS) };
  }
}
