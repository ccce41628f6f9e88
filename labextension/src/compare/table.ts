/** The table of differences: one column per run; rows without a difference are folded. */

import type { Translation } from "../translation";
import { button, h, scrollBox, setAttribute, setText, setVisible } from "../view/dom";
import type { Difference } from "./differences";
import { lineSample } from "./legend";
import type { LineStyle } from "./linestyle";

export interface Column {
  style: LineStyle;
  title: string;
}

export class DifferenceTable {
  readonly element: HTMLElement;
  private readonly head = h("tr");
  private readonly differing = h("tbody");
  private readonly equal = h("tbody", { hidden: true });
  private readonly fold: HTMLButtonElement;
  private readonly none = h("p", { class: "ddl-empty ddl-dim" });
  private drawn = "";

  constructor(private readonly trans: Translation) {
    const title = trans.__("Differences");
    const table = h("table", {}, h("thead", {}, this.head), this.differing, this.equal);
    this.fold = button("", () => this.toggle(), { class: "ddl-button ddl-fold", "aria-expanded": "false" });
    const parts = [h("h2", {}, title), this.none, scrollBox("ddl-table", title, table), this.fold];
    this.element = h("section", { class: "ddl-compare-part" }, ...parts);
    setText(this.none, trans.__("No differences."));
  }

  draw(columns: readonly Column[], rows: readonly Difference[]): void {
    // Unchanged content is not drawn again, so that a text selection in it is kept.
    const state = JSON.stringify([columns, rows]);
    if (state === this.drawn) return;
    this.drawn = state;
    const heads = columns.map(({ style, title }) =>
      h("th", { scope: "col" }, lineSample(style), h("b", {}, style.letter), " ", title),
    );
    this.head.replaceChildren(h("td"), ...heads);
    const differing = rows.filter(({ differs }) => differs);
    const equal = rows.filter(({ differs }) => !differs);
    this.differing.replaceChildren(...differing.map(rowElement));
    this.equal.replaceChildren(...equal.map(rowElement));
    setVisible(this.none, !differing.length);
    setVisible(this.fold, equal.length > 0);
    this.drawFold();
  }

  private toggle(): void {
    setVisible(this.equal, this.equal.hidden);
    this.drawFold();
  }

  private drawFold(): void {
    const count = this.equal.rows.length;
    setAttribute(this.fold, "aria-expanded", String(!this.equal.hidden));
    const text = this.equal.hidden
      ? this.trans._n("Show %1 equal row", "Show %1 equal rows", count)
      : this.trans._n("Hide %1 equal row", "Hide %1 equal rows", count);
    setText(this.fold, text);
  }
}

/** A row of a table with a heading and values. */
export function rowElement({ name, values }: Difference): HTMLTableRowElement {
  return h("tr", {}, h("th", { scope: "row" }, name), ...values.map((value) => h("td", {}, value)));
}
