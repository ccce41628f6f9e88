/** A run as the server tells it: each question brings what is new, and the model grows by it. */

import { type Api, bytes, type View } from "./api";
import type { Message } from "./view/messages";
import { type Delta, RunModel, unpack } from "./view/model";

export class Follower {
  readonly model = new RunModel();
  private page: string | undefined;
  private n = 0;
  private more = true;

  constructor(
    private readonly api: Api,
    readonly run: string,
  ) {}

  /** Whether nothing more will come. */
  get done(): boolean {
    return this.model.over && !this.more;
  }

  /**
   * Asks once; the server may wait `wait` seconds for news. Returns whether there are more at once.
   * Throws what `Api.view` throws; the model is then as it was.
   */
  async ask(wait: number, signal?: AbortSignal): Promise<boolean> {
    const known = this.page === undefined ? {} : { page: this.page, n: this.n, wait };
    const answer = await this.api.view(this.run, known, signal);
    if (answer) this.take(answer);
    this.more = answer !== null && (answer.more || this.page === undefined);
    return this.more;
  }

  private take(answer: View): void {
    const delta = received(answer);
    // A message is missing: the next question is for all of them.
    this.page = this.model.apply(delta) ? answer.page : undefined;
    this.n = delta.message.n;
  }
}

function received(answer: View): Delta {
  return unpack(answer.message as unknown as Message, answer.buffers.map(bytes));
}

/** Whether somebody can see what is drawn into `host`. */
export function isSeen(host: HTMLElement): boolean {
  return !document.hidden && host.offsetParent !== null;
}

/** Ends early when it is aborted. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}
