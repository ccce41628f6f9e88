/** Asks the server which runs match the query in the filter, while it is typed and while runs change. */

import { messageOf } from "../polling";
import { isQuery } from "./listfilter";

/** How long the reader has not typed before the server is asked. */
const TYPING_MS = 250;

/** How long an answer counts while runs change. */
const FRESH_MS = 2000;

export class Finder {
  /** The ids that match; null where the words are no query, or no answer has come yet. */
  found: ReadonlySet<string> | null = null;
  /** Why the query cannot be understood; empty if it can. */
  problem = "";
  private words = "";
  private asked = 0;
  /** Number of the last question, and of the one from which on answers count: older ones are dropped. */
  private number = 0;
  private oldest = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * @param ask the ids that match a query
   * @param changed called when `found` or `problem` has changed
   */
  constructor(
    private readonly ask: (query: string) => Promise<string[]>,
    private readonly changed: () => void,
  ) {}

  /** The words of the filter have changed. */
  set(words: string): void {
    if (words === this.words) return;
    this.words = words;
    this.dispose();
    if (isQuery(words)) this.later(TYPING_MS);
    else {
      this.found = null;
      this.problem = "";
    }
  }

  /** The list has changed: a run may match by now that did not. */
  refresh(): void {
    if (isQuery(this.words) && this.timer === undefined) this.later(Math.max(0, this.asked + FRESH_MS - Date.now()));
  }

  /** Asks no more, and drops the answers under way. */
  dispose(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.oldest = this.number + 1;
  }

  private later(milliseconds: number): void {
    this.timer = setTimeout(() => void this.askNow(), milliseconds);
  }

  private async askNow(): Promise<void> {
    this.timer = undefined;
    this.asked = Date.now();
    this.number += 1;
    const { number } = this;
    let [found, problem] = [this.found, ""];
    try {
      found = new Set(await this.ask(this.words));
    } catch (error) {
      problem = messageOf(error);
    }
    if (number < this.oldest) return; // other words have been typed meanwhile, or a newer answer has come
    this.oldest = number;
    this.found = found;
    this.problem = problem;
    this.changed();
  }
}
