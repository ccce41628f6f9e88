/** The tab of a search: the view that the notebook has, and what the panel adds to it. Independent of JupyterLab. */

import type { Api } from "../api";
import { FollowedPage, type PageOptions } from "../followedpage";
import type { SearchRow } from "../generated";
import { sleep } from "../polling";
import { setAttribute } from "../view/dom";
import { SearchFollower } from "./follower";
import { SearchView } from "./view";
import "../view/view.css";
import "./search.css";

/** Pause between two updates. */
const PAUSE_MS = 1000;

export interface SearchPageOptions extends PageOptions {
  api: Pick<Api, "searchView">;
  search: string;
}

/** Draws the search into `host` and follows it until it has ended or `dispose` is called. A hidden page does not poll. */
export class SearchPage extends FollowedPage<SearchPageOptions> {
  protected readonly deletedMessage: string;
  protected readonly finalStatuses = [404];
  private readonly view: SearchView;

  constructor(
    host: HTMLElement,
    options: SearchPageOptions,
    private readonly follower = new SearchFollower(options.api, options.search),
  ) {
    super(host, "ddl-searchpage", options, follower);
    const { actions, trans, search } = options;
    const { model } = follower;
    this.deletedMessage = trans.__("This search was deleted. What has been loaded of it is still shown.");
    const runOf = (trial: number) => model.trials.get(trial)?.run ?? "";
    setAttribute(this.root, "aria-label", trans.__("Search"));
    this.view = new SearchView(this.root, {
      model,
      waiting: trans.__("Loading the search …"),
      onStop: async () => (await actions.stopSearch(search)) !== null,
      onStopTrial: async (trial) => (await actions.stop(runOf(trial))) !== null,
      onOpenTrial: (trial) => actions.openRun(runOf(trial)),
      onCompare: (trials) => actions.compare(trials.map(runOf)),
    });
    this.start();
  }

  override dispose(): void {
    super.dispose();
    this.view.dispose();
  }

  protected override get row(): SearchRow | undefined {
    return this.options.feed.list.searches.get(this.options.search);
  }

  protected override get loaded(): boolean {
    return this.follower.model.info !== null;
  }

  protected override draw(): void {
    this.view.draw();
  }

  protected override drawRow(): void {
    if (this.row) setAttribute(this.root, "aria-label", this.row.name);
  }

  protected override async poll(signal: AbortSignal): Promise<boolean> {
    const done = await super.poll(signal);
    if (!done) await sleep(PAUSE_MS, signal);
    return done;
  }
}
