/** Follows a run over REST: each poll applies what is new to a model. */

import { type Api, decodeBase64 } from "./api";
import type { View } from "./generated";
import { RunModel, unpack } from "./view/model";

export class Follower {
  readonly model = new RunModel();
  private page: string | undefined;
  private n = 0;
  private more = true;

  constructor(
    private readonly api: Pick<Api, "view">,
    readonly run: string,
  ) {}

  /** Whether the run has ended and everything has arrived. */
  get done(): boolean {
    return this.model.over && !this.more;
  }

  /**
   * Polls once. Returns whether there is more at once. Rejects as `Api.view` does, with the model unchanged.
   *
   * @param wait seconds that the server may wait for an update
   */
  async poll(wait: number, signal?: AbortSignal): Promise<boolean> {
    const query = this.page === undefined ? {} : { page: this.page, n: this.n, wait };
    const answer = await this.api.view(this.run, query, signal);
    if (answer) this.apply(answer);
    this.more = answer !== null && (answer.more || this.page === undefined);
    return this.more;
  }

  private apply({ page, message, buffers }: View): void {
    const delta = unpack(message, buffers.map(decodeBase64));
    // If a message is missing, the next poll asks for a full one.
    this.page = this.model.apply(delta) ? page : undefined;
    this.n = message.n;
  }
}
