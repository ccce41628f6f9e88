/** The cells of two of the runs, line by line. */

import { bodyOf } from "../cell";
import { diffElement, diffSummary, lineDiff } from "../panel/diff";
import type { Translation } from "../translation";
import { createSelect, h, type Option, setOptions, setText, setVisible } from "../view/dom";
import type { ComparedRun } from "./comparison";

type TitleOf = (run: ComparedRun) => string;

export class CellDiff {
  readonly element: HTMLElement;
  private readonly before: HTMLSelectElement;
  private readonly after: HTMLSelectElement;
  private readonly summary = h("p", { class: "ddl-dim" });
  private readonly lines = h("div");
  private runs: readonly ComparedRun[] = [];
  private titleOf: TitleOf = ({ id }) => id;
  private drawn = "";
  /** Until the reader has selected runs, the first two are compared, which may change as runs arrive. */
  private selected = false;

  constructor(private readonly trans: Translation) {
    const [before, beforeElement] = createSelect(trans.__("Run whose cell comes first"));
    const [after, afterElement] = createSelect(trans.__("Run that it is compared with"));
    for (const select of [before, after]) {
      select.addEventListener("change", () => {
        this.selected = true;
        this.redraw();
      });
    }
    [this.before, this.after] = [before, after];
    const selects = h("div", { class: "ddl-compare-selects" }, beforeElement, " → ", afterElement);
    const heading = h("h2", {}, trans.__("Cells"));
    this.element = h("section", { class: "ddl-compare-part" }, heading, selects, this.summary, this.lines);
  }

  draw(runs: readonly ComparedRun[], titleOf: TitleOf): void {
    this.runs = runs.filter(({ details }) => details !== null);
    this.titleOf = titleOf;
    setVisible(this.element, this.runs.length > 1);
    this.setOptions(this.before, 0);
    this.setOptions(this.after, 1);
    this.redraw();
  }

  private redraw(): void {
    const [before, after] = [this.before, this.after].map(({ value }) => this.runs.find(({ id }) => id === value));
    if (!before || !after) return;
    const [from, to] = [cellOf(before), cellOf(after)];
    const state = JSON.stringify([before.id, after.id, from, to]);
    if (state === this.drawn) return;
    this.drawn = state;
    const lines = lineDiff(from, to);
    setText(this.summary, diffSummary(lines, this.trans));
    const label = this.trans.__("Cells of %1 and %2, line by line", this.titleOf(before), this.titleOf(after));
    this.lines.replaceChildren(diffElement(lines, label));
  }

  private setOptions(select: HTMLSelectElement, index: number): void {
    const id = this.selected ? select.value : this.runs[index]?.id;
    const options = this.runs.map((run): Option => [run.id, `${run.style.letter} ${this.titleOf(run)}`]);
    setOptions(select, options);
    if (id !== undefined) select.value = id;
  }
}

function cellOf({ details }: ComparedRun): string {
  return details ? bodyOf(details.spec) : "";
}
