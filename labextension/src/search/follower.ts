/** Follows a search over REST: each poll applies what is new to a model. */

import type { Api } from "../api";
import { SearchModel } from "./model";

export class SearchFollower {
  readonly model = new SearchModel();
  /** Whether the search has ended and everything has arrived. */
  done = false;
  private version: string | undefined;
  private n = 0;

  constructor(
    private readonly api: Pick<Api, "searchView">,
    readonly search: string,
  ) {}

  /**
   * Polls once. Rejects as `Api.searchView` does, with the model unchanged.
   *
   * @param wait seconds that the server may wait for an update
   */
  async poll(wait: number, signal?: AbortSignal): Promise<void> {
    const query = this.version === undefined ? {} : { version: this.version, wait };
    const answer = await this.api.searchView(this.search, query, signal);
    if (!answer) return;
    this.n += 1; // The version leaves no gap between two answers.
    this.model.apply({ ...answer.message, n: this.n });
    this.version = answer.version;
    this.done = !answer.live;
  }
}
