/** The details of a run: requested when they are needed first, and again after the run has changed. */

import type { Api } from "../api";
import type { RunDetails } from "../generated";
import { isReadable } from "../panel/runlist";

export class DetailsSource {
  private request: Promise<RunDetails> | null = null;

  constructor(
    private readonly api: Pick<Api, "run">,
    readonly run: string,
  ) {}

  /** The details. Rejects with an `ApiError`, or with an Error that says why the run cannot be read. */
  get(): Promise<RunDetails> {
    this.request ??= this.load().catch((error) => {
      this.request = null;
      throw error;
    });
    return this.request;
  }

  /** The run has changed: the next `get` asks the server again. */
  invalidate(): void {
    this.request = null;
  }

  private async load(): Promise<RunDetails> {
    const details = await this.api.run(this.run);
    if (!isReadable(details)) throw new Error(details.problem);
    return details;
  }
}
