/** What narrows the list: words, "running only", an order. */

import type { Translation } from "../translation";
import { h } from "../view/dom";
import { EVERYTHING, ORDERS, type Order, type Wish } from "./arrange";

export class FilterBar {
  readonly element: HTMLElement;
  private readonly words: HTMLInputElement;
  private readonly live: HTMLInputElement;
  private readonly order: HTMLSelectElement;

  constructor(trans: Translation, changed: () => void) {
    const labels: Record<Order, string> = {
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
      "aria-label": trans.__("Filter runs by words of name, label, state, notebook or cluster"),
    });
    this.live = h("input", { type: "checkbox" });
    this.order = h("select", { class: "ddl-filter-order", "aria-label": trans.__("Order of runs") });
    this.order.append(...ORDERS.map((value) => h("option", { value }, labels[value])));
    for (const input of [this.words, this.live, this.order]) input.addEventListener("input", changed);
    this.element = h(
      "div",
      { class: "ddl-filter", role: "search" },
      this.words,
      h("label", { class: "ddl-filter-live" }, this.live, trans.__("Running only")),
      this.order,
    );
  }

  get wish(): Wish {
    return { words: this.words.value, live: this.live.checked, order: this.order.value as Order };
  }

  /** Puts a wish of an earlier page back. */
  set(wish: Wish): void {
    this.words.value = wish.words;
    this.live.checked = wish.live;
    this.order.value = wish.order;
  }

  /** Shows all, in the order that was chosen. */
  clear(): void {
    this.set({ ...EVERYTHING, order: this.order.value as Order });
  }
}
