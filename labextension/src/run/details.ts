/** The details of a run: requested when they are needed first, and again after the run has changed. */

import type { Api } from "../api";
import type { RunDetails } from "../generated";

export class DetailsSource {
  private request: Promise<RunDetails> | null = null;

  constructor(
    private readonly api: Pick<Api, "run">,
    private readonly run: string,
  ) {}

  /** The details. Rejects as `Api.run` does. */
  get(): Promise<RunDetails> {
    this.request ??= this.api.run(this.run).catch((error) => {
      this.request = null;
      throw error;
    });
    return this.request;
  }

  /** The run has changed: the next `get` asks the server again. */
  invalidate(): void {
    this.request = null;
  }
}
