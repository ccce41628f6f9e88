/** What the tabs of a run and of a search share: they poll the server until the end, and a banner says what is wrong. */

import type { RunActions } from "./actions";
import { ApiError } from "./api";
import type { Follower } from "./follower";
import type { ListFeed } from "./panel/feed";
import { follow, messageOf, WAIT_SECONDS } from "./polling";
import type { SearchFollower } from "./search/follower";
import type { Translation } from "./translation";
import { h, setNote } from "./view/dom";

export interface PageOptions {
  feed: ListFeed;
  actions: RunActions;
  trans: Translation;
}

export abstract class FollowedPage<Options extends PageOptions> {
  protected readonly root: HTMLElement;
  private readonly aborter = new AbortController();
  private readonly banner = h("p", { class: "ddl-banner", role: "status", hidden: true });
  private readonly onListChange = () => this.listChanged();
  private wasListed = false;
  private wasLive = false;

  constructor(
    private readonly host: HTMLElement,
    className: string,
    protected readonly options: Options,
    private readonly followed: Follower | SearchFollower,
  ) {
    this.root = h("section", { class: className }, this.banner);
  }

  dispose(): void {
    this.aborter.abort();
    this.options.feed.changed.disconnect(this.onListChange);
    this.root.remove();
  }

  protected abstract readonly deletedMessage: string;
  /** HTTP statuses after which the server is not asked again. */
  protected abstract readonly finalStatuses: readonly number[];
  /** The row of the panel's list. */
  protected abstract get row(): { live: boolean } | undefined;
  /** Whether there is something to see if the server does not answer. */
  protected abstract get loaded(): boolean;
  /** Draws what the server has sent. */
  protected abstract draw(): void;
  /** Draws what the panel's list says. */
  protected abstract drawRow(): void;

  /** The list may be incomplete: only what was listed before counts as deleted. */
  protected get deleted(): boolean {
    return this.wasListed && !this.row && this.followed.model.over;
  }

  /** Called once, when the page has its content. */
  protected start(): void {
    this.host.append(this.root);
    this.options.feed.changed.connect(this.onListChange);
    this.listChanged();
    void this.follow();
  }

  protected async poll(signal: AbortSignal): Promise<boolean> {
    await this.followed.poll(WAIT_SECONDS, signal);
    setNote(this.banner, this.deleted ? this.deletedMessage : "");
    this.draw();
    return this.followed.done;
  }

  private follow(): Promise<void> {
    const { signal } = this.aborter;
    return follow(this.host, signal, () => this.poll(signal), (error) => this.failed(error)); // biome-ignore format: short
  }

  /** Shows an error; whether it is final. */
  private failed(error: unknown): boolean {
    const final = error instanceof ApiError && this.finalStatuses.includes(error.status);
    const message = messageOf(error);
    const outdated = this.loaded && !final;
    setNote(this.banner, outdated ? this.options.trans.__("The last known state is shown: %1", message) : message);
    return final;
  }

  private listChanged(): void {
    const live = this.row?.live ?? false;
    if (this.row) this.wasListed = true;
    if (this.deleted) setNote(this.banner, this.deletedMessage);
    this.drawRow();
    const continues = live && !this.wasLive && this.followed.done; // it was lost, and is attached again
    this.wasLive = live;
    if (continues) void this.follow();
  }
}
