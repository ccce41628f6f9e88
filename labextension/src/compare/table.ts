/** The table of what differs: a column a run; rows that are equal are folded away. */

import type { Translation } from "../translation";
import { attribute, h, show, text } from "../view/dom";
import type { Difference } from "./differences";
import { stroke } from "./legend";
import type { Look } from "./look";

export interface Column {
  look: Look;
  name: string;
}

export class DifferenceTable {
  readonly element: HTMLElement;
  private readonly head = h("tr");
  private readonly differing = h("tbody");
  private readonly equal = h("tbody", { hidden: true });
  private readonly fold = h("button", { type: "button", class: "ddl-button ddl-fold", "aria-expanded": "false" });
  private readonly none = h("p", { class: "ddl-empty ddl-dim" });
  private drawn = "";

  constructor(private readonly trans: Translation) {
    const title = trans.__("What differs");
    const table = h("table", {}, h("thead", {}, this.head), this.differing, this.equal);
    // A focusable group: what is wider than its place can be scrolled with the keyboard.
    const scroll = h("div", { class: "ddl-table", tabindex: 0, role: "group", "aria-label": title }, table);
    this.element = h("section", { class: "ddl-compare-part" }, h("h2", {}, title), this.none, scroll, this.fold);
    this.fold.addEventListener("click", () => {
      show(this.equal, this.equal.hidden);
      this.label();
    });
    text(this.none, trans.__("Nothing differs."));
  }

  draw(columns: readonly Column[], rows: readonly Difference[]): void {
    const now = JSON.stringify([columns, rows]);
    // A selection in the table survives what changes nothing.
    if (now === this.drawn) return;
    this.drawn = now;
    const heads = columns.map(({ look, name }) =>
      h("th", { scope: "col" }, stroke(look), h("b", {}, look.letter), " ", name),
    );
    this.head.replaceChildren(h("td"), ...heads);
    const [differing, equal] = [true, false].map((differs) => rows.filter((row) => row.differs === differs).map(line));
    this.differing.replaceChildren(...(differing ?? []));
    this.equal.replaceChildren(...(equal ?? []));
    show(this.none, !differing?.length);
    show(this.fold, Boolean(equal?.length));
    this.label();
  }

  private label(): void {
    const count = this.equal.rows.length;
    attribute(this.fold, "aria-expanded", String(!this.equal.hidden));
    const words = this.equal.hidden
      ? this.trans._n("Show %1 equal row", "Show %1 equal rows", count)
      : this.trans._n("Hide %1 equal row", "Hide %1 equal rows", count);
    text(this.fold, words);
  }
}

function line({ name, values }: Difference): HTMLTableRowElement {
  return h("tr", {}, h("th", { scope: "row" }, name), ...values.map((value) => h("td", {}, value)));
}
