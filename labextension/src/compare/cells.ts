/** The cells of two runs, line by line. */

import { diffElement, diffWords, lineDiff } from "../panel/diff";
import type { Translation } from "../translation";
import { choice, h, show, text } from "../view/dom";
import type { Compared } from "./feed";

export class CellDifference {
  readonly element: HTMLElement;
  private readonly before: HTMLSelectElement;
  private readonly after: HTMLSelectElement;
  private readonly words = h("p", { class: "ddl-dim" });
  private readonly lines = h("div");
  private runs: readonly Compared[] = [];
  private name: (run: Compared) => string = ({ id }) => id;
  private drawn = "";
  /** Runs come one by one: until the reader has chosen, the first two of them are meant. */
  private chosen = false;

  constructor(private readonly trans: Translation) {
    const [before, beforePick] = choice(trans.__("Run whose cell comes first"));
    const [after, afterPick] = choice(trans.__("Run that it is compared with"));
    for (const select of [before, after]) {
      select.addEventListener("change", () => {
        this.chosen = true;
        this.redraw();
      });
    }
    [this.before, this.after] = [before, after];
    const picks = h("div", { class: "ddl-compare-picks" }, beforePick, " → ", afterPick);
    const title = h("h2", {}, trans.__("Cells"));
    this.element = h("section", { class: "ddl-compare-part" }, title, picks, this.words, this.lines);
  }

  /** `name` is what a reader calls a run. */
  draw(runs: readonly Compared[], name: (run: Compared) => string): void {
    this.runs = runs.filter(({ details }) => details !== null);
    this.name = name;
    show(this.element, this.runs.length > 1);
    this.fill(this.before, 0);
    this.fill(this.after, 1);
    this.redraw();
  }

  private redraw(): void {
    const [before, after] = [this.before, this.after].map(({ value }) => this.runs.find(({ id }) => id === value));
    if (!before || !after) return;
    const [from, to] = [cellOf(before), cellOf(after)];
    const now = JSON.stringify([before.id, after.id, from, to]);
    if (now === this.drawn) return;
    this.drawn = now;
    const lines = lineDiff(from, to);
    text(this.words, diffWords(lines, this.trans));
    const label = this.trans.__("Cells of %1 and %2, line by line", this.name(before), this.name(after));
    this.lines.replaceChildren(diffElement(lines, label));
  }

  private fill(select: HTMLSelectElement, place: number): void {
    const titles = this.runs.map((run) => `${run.look.letter} ${this.name(run)}`);
    if ([...select.options].map(({ text }) => text).join("\n") === titles.join("\n")) return;
    const id = this.chosen ? select.value : this.runs[place]?.id;
    select.replaceChildren(...this.runs.map((run, i) => h("option", { value: run.id }, titles[i] as string)));
    if (id !== undefined) select.value = id;
  }
}

function cellOf({ details }: Compared): string {
  return String(details?.spec.cell ?? "");
}
