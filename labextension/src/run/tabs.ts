/** Tabs of a page: one stop of the Tab key, the arrows go from one to the next, and what is chosen is shown at once. */

import { attribute, h, show } from "../view/dom";
import { focusOn, roving } from "../view/keys";

/** What stands in a tab. It is told when it is seen, and when no longer. */
export interface Part {
  readonly element: HTMLElement;
  show(): void;
  hide(): void;
}

export interface Tab {
  title: string;
  part: Part;
}

let pages = 0;

export class Tabs {
  readonly element: HTMLElement;
  private readonly buttons: HTMLButtonElement[];
  private readonly panels: HTMLElement[];
  private current = -1;

  /** `label` names the row of tabs; the first is chosen. */
  constructor(
    label: string,
    private readonly tabs: readonly Tab[],
  ) {
    const page = `ddl-runpage-${pages++}`;
    this.buttons = tabs.map(({ title }, i) => {
      const names = { id: `${page}-tab-${i}`, "aria-controls": `${page}-panel-${i}` };
      const button = h("button", { type: "button", role: "tab", ...names }, title);
      for (const event of ["click", "focus"]) button.addEventListener(event, () => this.choose(i));
      return button;
    });
    this.panels = tabs.map(({ part }, i) => {
      const names = { id: `${page}-panel-${i}`, "aria-labelledby": `${page}-tab-${i}` };
      return h("div", { role: "tabpanel", class: "ddl-runpage-panel", ...names }, part.element);
    });
    const list = h("div", { class: "ddl-runpage-tabs", role: "tablist", "aria-label": label }, ...this.buttons);
    roving(list);
    this.element = h("div", {}, list, ...this.panels);
    this.choose(0);
  }

  choose(index: number): void {
    if (index === this.current) return;
    this.tabs[this.current]?.part.hide();
    this.current = index;
    focusOn(this.buttons, index);
    this.buttons.forEach((button, i) => {
      attribute(button, "aria-selected", String(i === index));
    });
    this.panels.forEach((panel, i) => {
      show(panel, i === index);
    });
    this.tabs[index]?.part.show();
  }
}
