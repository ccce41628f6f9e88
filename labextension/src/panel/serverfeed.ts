/** Keeps the list of served models up to date by polling, while somebody watches. */

import { Poll } from "@lumino/polling";
import { type ISignal, Signal } from "@lumino/signaling";
import type { Api } from "../api";
import type { ServedModel } from "../generated";

/** Poll intervals while a model is served, and while none is. */
const BUSY_MS = 2000;
const IDLE_MS = 6000;
/** Upper bound of the interval while the server does not respond. */
const MAX_BACKOFF_MS = 60_000;

/** The served models as the panel uses them. */
export interface IServerFeed {
  readonly servers: readonly ServedModel[];
  readonly changed: ISignal<unknown, void>;
  /** Polls now. */
  refresh(): void;
  /** Somebody watches, until the returned function is called. */
  watch(): () => void;
}

export class ServerFeed implements IServerFeed {
  servers: readonly ServedModel[] = [];
  readonly changed = new Signal<this, void>(this);
  private readonly poll: Poll;
  private watchers = 0;

  constructor(private readonly api: Api) {
    this.poll = new Poll({
      auto: false,
      factory: () => this.read(),
      frequency: { interval: IDLE_MS, backoff: true, max: MAX_BACKOFF_MS },
      standby: () => document.hidden || !this.watchers,
      name: "ddl-magics:servers",
    });
  }

  refresh(): void {
    void this.poll.refresh().catch(() => {});
  }

  watch(): () => void {
    this.watchers += 1;
    void this.poll.start().catch(() => {});
    this.refresh();
    let watching = true;
    return () => {
      if (watching) this.watchers -= 1;
      watching = false;
    };
  }

  dispose(): void {
    this.poll.dispose();
    Signal.clearData(this);
  }

  /** What cannot be read is shown as it was: the list of runs says that the server does not respond. */
  private async read(): Promise<void> {
    const servers = await this.api.servers();
    if (this.poll.isDisposed) return;
    const interval = servers.length ? BUSY_MS : IDLE_MS;
    if (this.poll.frequency.interval !== interval) {
      this.poll.frequency = { interval, backoff: true, max: MAX_BACKOFF_MS };
    }
    if (JSON.stringify(servers) === JSON.stringify(this.servers)) return;
    this.servers = servers;
    this.changed.emit();
  }
}
