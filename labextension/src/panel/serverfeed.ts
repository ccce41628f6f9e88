/** Keeps the list of served models up to date by polling, while somebody watches. */

import type { Api } from "../api";
import type { ServedModel } from "../generated";
import { PolledFeed, type WatchedFeed } from "./polledfeed";

/** Poll intervals while a model is served, and while none is. */
const BUSY_MS = 2000;
const IDLE_MS = 6000;

/** The served models as the panel uses them. */
export interface IServerFeed extends WatchedFeed {
  readonly servers: readonly ServedModel[];
}

export class ServerFeed extends PolledFeed implements IServerFeed {
  servers: readonly ServedModel[] = [];

  constructor(private readonly api: Api) {
    super("servers", IDLE_MS);
  }

  protected override get idle(): boolean {
    return !this.watchers;
  }

  protected override get intervalMs(): number {
    return this.servers.length ? BUSY_MS : IDLE_MS;
  }

  /** What cannot be read is shown as it was: the list of runs says that the server does not respond. */
  protected override async read(): Promise<void> {
    const servers = await this.api.servers();
    if (this.poll.isDisposed) return;
    if (JSON.stringify(servers) === JSON.stringify(this.servers)) return;
    this.servers = servers;
    this.updateInterval();
    this.changed.emit();
  }
}
