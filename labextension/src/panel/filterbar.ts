/** The controls above the list: a search field, "Running only", and the order. */

import type { Translation } from "../translation";
import { h, setAttribute, setNote } from "../view/dom";
import { type ListFilter, NO_FILTER, ORDERS, type Order, parseOrder } from "./listfilter";

export class FilterBar {
  readonly element: HTMLElement;
  private readonly words: HTMLInputElement;
  private readonly live: HTMLInputElement;
  private readonly order: HTMLSelectElement;
  /** Why the query cannot be understood. */
  private readonly problem = h("p", { class: "ddl-filter-problem", id: "ddl-filter-problem", role: "status" });

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
      title: trans.__("Words, or state:failed val_accuracy>0.9 tag:paper lr<0.01"),
      "aria-label": trans.__("Filter runs by words, or by a query such as state:failed val_accuracy>0.9 tag:paper"),
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
      this.problem,
    );
    this.showProblem("");
  }

  /** Shows why the query cannot be understood; nothing if `text` is empty. */
  showProblem(text: string): void {
    setNote(this.problem, text);
    setAttribute(this.words, "aria-invalid", text ? "true" : undefined);
    setAttribute(this.words, "aria-describedby", text ? this.problem.id : undefined);
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
