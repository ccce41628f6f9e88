/** What the server says of a run besides its events: asked for when somebody looks, and anew once it has ended. */

import type { Api, RunDetails } from "../api";
import { readable } from "../panel/runlist";

export class DetailsSource {
  private asked: Promise<RunDetails> | null = null;

  constructor(
    private readonly api: Pick<Api, "run">,
    readonly run: string,
  ) {}

  /** The newest answer. Throws an `ApiError`, or an Error that says why the run cannot be read. */
  get(): Promise<RunDetails> {
    this.asked ??= this.ask().catch((error) => {
      this.asked = null;
      throw error;
    });
    return this.asked;
  }

  /** It is not as it was: who asks next asks the server. */
  outdate(): void {
    this.asked = null;
  }

  private async ask(): Promise<RunDetails> {
    const answer = await this.api.run(this.run);
    if (!readable(answer)) throw new Error(answer.problem);
    return answer as RunDetails;
  }
}
