/** Tabs of a page. The row of tabs is one Tab stop; the arrow keys move along it and show the tab at once. */

import { h, setAttribute, setVisible } from "../view/dom";
import { focusOn, roving } from "../view/keys";

/** The content of a tab, which is told when it becomes visible or hidden. */
export interface TabContent {
  readonly element: HTMLElement;
  show(): void;
  hide(): void;
}

export interface Tab {
  title: string;
  content: TabContent;
}

let pages = 0;

export class Tabs {
  readonly element: HTMLElement;
  private readonly buttons: HTMLButtonElement[];
  private readonly panels: HTMLElement[];
  private current = -1;

  /** @param label of the row of tabs, for screen readers */
  constructor(
    label: string,
    private readonly tabs: readonly Tab[],
  ) {
    const page = `ddl-runpage-${pages++}`;
    this.buttons = tabs.map(({ title }, i) => {
      const ids = { id: `${page}-tab-${i}`, "aria-controls": `${page}-panel-${i}` };
      const button = h("button", { type: "button", role: "tab", ...ids }, title);
      for (const event of ["click", "focus"]) button.addEventListener(event, () => this.select(i));
      return button;
    });
    this.panels = tabs.map(({ content }, i) => {
      const ids = { id: `${page}-panel-${i}`, "aria-labelledby": `${page}-tab-${i}` };
      return h("div", { role: "tabpanel", class: "ddl-runpage-panel", ...ids }, content.element);
    });
    const list = h("div", { class: "ddl-runpage-tabs", role: "tablist", "aria-label": label }, ...this.buttons);
    roving(list);
    this.element = h("div", {}, list, ...this.panels);
    this.select(0);
  }

  select(index: number): void {
    if (index === this.current) return;
    this.tabs[this.current]?.content.hide();
    this.current = index;
    focusOn(this.buttons, index);
    this.buttons.forEach((button, i) => {
      setAttribute(button, "aria-selected", String(i === index));
    });
    this.panels.forEach((panel, i) => {
      setVisible(panel, i === index);
    });
    this.tabs[index]?.content.show();
  }
}
