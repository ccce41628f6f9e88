/** A tab that is drawn from the run's details, once they are there. */

import type { RunDetails } from "../api";
import type { Translation } from "../translation";
import { h } from "../view/dom";
import type { DetailsSource } from "./details";
import type { Part } from "./tabs";

export class DetailPart implements Part {
  readonly element = h("div", { class: "ddl-runpage-text" });
  private drawn: RunDetails | null = null;
  private seen = false;

  /** `draw` makes what stands in the tab. It may ask the server for more, and throw what comes of that. */
  constructor(
    private readonly source: DetailsSource,
    private readonly trans: Translation,
    private readonly draw: (details: RunDetails) => Node[] | Promise<Node[]>,
  ) {
    this.say(trans.__("Reading the run …"));
  }

  show(): void {
    this.seen = true;
    void this.update();
  }

  hide(): void {
    this.seen = false;
  }

  /** Draws anew what is not as it was; a tab that nobody sees, when it is seen. `all`: the details are the same. */
  async update(all = false): Promise<void> {
    if (all) this.drawn = null;
    if (!this.seen) return;
    try {
      const details = await this.source.get();
      if (details === this.drawn) return;
      this.drawn = details;
      const nodes = await this.draw(details);
      if (details === this.drawn) this.element.replaceChildren(...nodes);
    } catch (error) {
      this.drawn = null;
      this.say(this.trans.__("It cannot be shown: %1", error instanceof Error ? error.message : String(error)));
    }
  }

  private say(words: string): void {
    this.element.replaceChildren(h("p", { class: "ddl-runpage-dim", role: "status" }, words));
  }
}
