/** A tab whose content is made from the run's details. */

import type { RunDetails } from "../generated";
import { messageOf } from "../polling";
import type { Translation } from "../translation";
import { h } from "../view/dom";
import type { DetailsSource } from "./details";
import type { TabContent } from "./tabs";

export class DetailsTab implements TabContent {
  readonly element = h("div", { class: "ddl-runpage-text" });
  private drawn: RunDetails | null = null;
  private visible = false;

  /** @param content makes the content of the tab; an error is shown instead */
  constructor(
    private readonly source: DetailsSource,
    private readonly trans: Translation,
    private readonly content: (details: RunDetails) => Node[] | Promise<Node[]>,
  ) {
    this.setMessage(trans.__("Loading the run …"));
  }

  show(): void {
    this.visible = true;
    void this.update();
  }

  hide(): void {
    this.visible = false;
  }

  /** Draws the tab, if it is visible and the details have changed. `force`: even if they have not. */
  async update(force = false): Promise<void> {
    if (force) this.drawn = null;
    if (!this.visible) return;
    try {
      const details = await this.source.get();
      if (details === this.drawn) return;
      this.drawn = details;
      const nodes = await this.content(details);
      if (details === this.drawn) this.element.replaceChildren(...nodes);
    } catch (error) {
      this.drawn = null;
      this.setMessage(this.trans.__("It cannot be shown: %1", messageOf(error)));
    }
  }

  private setMessage(text: string): void {
    this.element.replaceChildren(h("p", { class: "ddl-runpage-dim", role: "status" }, text));
  }
}
