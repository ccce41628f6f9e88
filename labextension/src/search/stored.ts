/** The block of a search below its live view in a notebook, as `run/stored.ts` has that of a run. */

import type { Api } from "../api";
import type { Block, SearchRow } from "../generated";
import { sleep } from "../polling";
import { Stored, type StoredOptions } from "../run/stored";
import { SearchFollower } from "./follower";
import { SearchView } from "./view";
import "./search.css";

/** Pause between two updates. */
const PAUSE_MS = 1000;

export interface StoredSearchOptions extends StoredOptions {
  api: Pick<Api, "searchView" | "searchBlock">;
  /** The reader wants a trial to end. */
  onStopTrial(run: string): void;
}

export class StoredSearch extends Stored<StoredSearchOptions> {
  protected readonly follower = new SearchFollower(this.options.api, this.options.id);

  protected override get row(): SearchRow | undefined {
    return this.options.feed.list.searches.get(this.options.id);
  }

  protected override async read(wait: number, signal: AbortSignal): Promise<void> {
    if (wait) await sleep(PAUSE_MS, signal);
    await this.follower.poll(wait, signal);
  }

  protected override createView(host: HTMLElement): SearchView {
    const { model } = this.follower;
    const { onStop, onStopTrial } = this.options;
    return new SearchView(host, {
      model,
      onStop,
      onStopTrial: (trial) => onStopTrial(model.trials.get(trial)?.run ?? ""),
    });
  }

  protected override block(signal: AbortSignal): Promise<Block> {
    return this.options.api.searchBlock(this.options.id, signal);
  }
}
