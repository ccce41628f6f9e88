/** The tab of a search: the view that the notebook has, and what the panel adds to it. Independent of JupyterLab. */

import type { RunActions } from "../actions";
import { type Api, ApiError } from "../api";
import type { ListFeed } from "../panel/feed";
import { follow, messageOf, sleep, WAIT_SECONDS } from "../polling";
import type { Translation } from "../translation";
import { h, setAttribute, setText, setVisible } from "../view/dom";
import { SearchFollower } from "./follower";
import { SearchView } from "./view";
import "../view/view.css";
import "./search.css";

/** Pause between two updates. */
const PAUSE_MS = 1000;

export interface SearchPageOptions {
  api: Pick<Api, "searchView">;
  feed: ListFeed;
  actions: RunActions;
  trans: Translation;
  search: string;
}

/** Draws the search into `host` and follows it until it has ended or `dispose` is called. A hidden page does not poll. */
export function createSearchPage(host: HTMLElement, options: SearchPageOptions): { dispose(): void } {
  return new SearchPage(host, options);
}

class SearchPage {
  private readonly aborter = new AbortController();
  private readonly follower: SearchFollower;
  private readonly banner = h("p", { class: "ddl-banner", role: "status", hidden: true });
  private readonly root: HTMLElement;
  private readonly view: SearchView;
  private readonly onListChange = () => this.listChanged();
  private wasListed = false;
  private wasLive = true;

  constructor(
    private readonly host: HTMLElement,
    private readonly options: SearchPageOptions,
  ) {
    const { api, feed, actions, trans, search } = options;
    this.follower = new SearchFollower(api, search);
    const { model } = this.follower;
    const runOf = (trial: number) => model.trials.get(trial)?.run ?? "";
    this.root = h("section", { class: "ddl-searchpage", "aria-label": trans.__("Search") }, this.banner);
    this.view = new SearchView(this.root, {
      model,
      waiting: trans.__("Loading the search …"),
      onStop: async () => (await actions.stopSearch(search)) !== null,
      onStopTrial: async (trial) => (await actions.stop(runOf(trial))) !== null,
      onOpenTrial: (trial) => actions.openRun(runOf(trial)),
      onCompare: (trials) => actions.compare(trials.map(runOf)),
    });
    host.append(this.root);
    feed.changed.connect(this.onListChange);
    this.listChanged();
    void this.follow();
  }

  dispose(): void {
    this.aborter.abort();
    this.options.feed.changed.disconnect(this.onListChange);
    this.view.dispose();
    this.root.remove();
  }

  private follow(): Promise<void> {
    const { signal } = this.aborter;
    const failed = (error: unknown) => this.failed(error);
    return follow(this.host, signal, () => this.poll(signal), failed);
  }

  private async poll(signal: AbortSignal): Promise<boolean> {
    await this.follower.poll(WAIT_SECONDS, signal);
    this.setBanner("");
    this.view.draw();
    if (!this.follower.done) await sleep(PAUSE_MS, signal);
    return this.follower.done;
  }

  /** Tells of it; whether there is no use in another try. */
  private failed(error: unknown): boolean {
    const gone = error instanceof ApiError && error.status === 404;
    const message = messageOf(error);
    const known = !gone && this.follower.model.info !== null;
    this.setBanner(known ? this.options.trans.__("The last known state is shown: %1", message) : message);
    return gone;
  }

  /** The panel's list has changed: it tells whether the search exists, and whether a kernel continues it. */
  private listChanged(): void {
    const { feed, search, trans } = this.options;
    const row = feed.list.searches.get(search);
    const { done, model } = this.follower;
    if (row) {
      this.wasListed = true;
      setAttribute(this.root, "aria-label", row.name);
      const continues = row.live && !this.wasLive && done;
      this.wasLive = row.live;
      if (continues) void this.follow();
    } else if (this.wasListed && model.over) {
      this.setBanner(trans.__("This search was deleted. What has been loaded of it is still shown."));
    }
  }

  private setBanner(text: string): void {
    setText(this.banner, text);
    setVisible(this.banner, text !== "");
  }
}
