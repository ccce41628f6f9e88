/** The controls above the list: a search field, "Running only", and the order. */

import type { Translation } from "../translation";
import { h } from "../view/dom";
import { type ListFilter, NO_FILTER, ORDERS, type Order, parseOrder } from "./listfilter";

export class FilterBar {
  readonly element: HTMLElement;
  private readonly words: HTMLInputElement;
  private readonly live: HTMLInputElement;
  private readonly order: HTMLSelectElement;

  constructor(trans: Translation, onChange: () => void) {
    const titles: Record<Order, string> = {
      live: trans.__("Running first"),
      newest: trans.__("Newest first"),
      name: trans.__("By name"),
      loss: trans.__("Lowest loss"),
      longest: trans.__("Longest"),
    };
    this.words = h("input", {
      type: "search",
      class: "ddl-filter-words",
      placeholder: trans.__("Filter"),
      "aria-label": trans.__("Filter runs by name, tag, state, notebook or cluster"),
    });
    this.live = h("input", { type: "checkbox" });
    this.order = h("select", { class: "ddl-filter-order", "aria-label": trans.__("Order of runs") });
    this.order.append(...ORDERS.map((value) => h("option", { value }, titles[value])));
    for (const input of [this.words, this.live, this.order]) input.addEventListener("input", onChange);
    this.element = h(
      "div",
      { class: "ddl-filter", role: "search" },
      this.words,
      h("label", { class: "ddl-filter-live" }, this.live, trans.__("Running only")),
      this.order,
    );
  }

  get filter(): ListFilter {
    return { words: this.words.value, live: this.live.checked, order: parseOrder(this.order.value) };
  }

  set(filter: ListFilter): void {
    this.words.value = filter.words;
    this.live.checked = filter.live;
    this.order.value = filter.order;
  }

  /** Shows all runs, in the selected order. */
  clear(): void {
    this.set({ ...NO_FILTER, order: this.filter.order });
  }
}
