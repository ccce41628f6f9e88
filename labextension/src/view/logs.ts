/** What the ranks printed: all of them together, or one. */

import { attribute, choice, h, show, text } from "./dom";
import { focusOn, roving } from "./keys";
import type { LogLine } from "./messages";
import type { RunModel } from "./model";

/** Above so many ranks a list to choose from replaces the tabs. */
const TABS = 16;

/** Lines in the document at most. */
const SHOWN = 500;

let views = 0;

export class Logs {
  readonly element: HTMLElement;
  private readonly id = `ddl-log-${views++}`;
  private readonly tabs = h("div", { class: "ddl-tabs", role: "tablist", "aria-label": "printed lines" });
  private readonly choice: HTMLSelectElement;
  private readonly picker: HTMLElement;
  private readonly status = h("span", { class: "ddl-dim ddl-status" });
  private readonly output = h("div", { class: "ddl-log", role: "tabpanel", tabindex: 0, id: this.id });
  private rank: number | null = null;
  private ranks = -1;
  private shown = { generation: -1, logged: 0, rank: null as number | null };
  private model: RunModel | null = null;

  /** `onChoose` gets the rank whose lines the reader wants, null for all. */
  constructor(private readonly onChoose: (rank: number | null) => void) {
    [this.choice, this.picker] = choice("rank whose lines are shown");
    this.choice.addEventListener("change", () =>
      this.choose(this.choice.value === "" ? null : Number(this.choice.value)),
    );
    roving(this.tabs);
    const bar = h("div", { class: "ddl-logbar" }, this.tabs, this.picker, this.status);
    this.element = h("div", { class: "ddl-logs" }, bar, this.output);
  }

  /** Shows one rank's lines, or all. */
  choose(rank: number | null): void {
    if (rank === this.rank) return;
    this.rank = rank;
    if (this.model) this.draw(this.model);
    this.onChoose(rank);
  }

  draw(model: RunModel): void {
    this.model = model;
    this.drawChoice(model.run?.workers ?? 0);
    this.drawLines(model);
  }

  /** The line about epoch, step and age stands beside the tabs. */
  drawStatus(words: string, silent: boolean): void {
    text(this.status, words);
    attribute(this.status, "data-silent", silent);
  }

  private drawChoice(ranks: number): void {
    const few = ranks <= TABS;
    if (ranks !== this.ranks) {
      this.ranks = ranks;
      const numbers = Array.from({ length: ranks }, (_, rank) => rank);
      if (few) this.tabs.replaceChildren(this.tab(null), ...(ranks > 1 ? numbers.map((rank) => this.tab(rank)) : []));
      const entries = numbers.map((rank) => h("option", { value: rank }, `rank ${rank}`));
      this.choice.replaceChildren(h("option", { value: "" }, "All ranks"), ...entries);
    }
    show(this.tabs, few);
    show(this.picker, !few);
    const chosen = this.rank === null ? "" : String(this.rank);
    if (this.choice.value !== chosen) this.choice.value = chosen;
    const tabs = [...this.tabs.querySelectorAll("button")];
    const current = this.rank === null ? 0 : this.rank + 1;
    tabs.forEach((tab, i) => {
      attribute(tab, "aria-selected", String(i === current));
    });
    if (!this.tabs.contains(document.activeElement)) focusOn(tabs, current);
    attribute(this.output, "aria-label", this.rank === null ? "printed by all ranks" : `printed by rank ${this.rank}`);
  }

  private tab(rank: number | null): HTMLButtonElement {
    const words = rank === null ? "All ranks" : String(rank);
    const props = { type: "button", role: "tab", "aria-controls": this.id };
    const button = h("button", rank === null ? props : { ...props, "aria-label": `rank ${rank}` }, words);
    button.addEventListener("click", () => this.choose(rank));
    return button;
  }

  private drawLines(model: RunModel): void {
    const { output, shown } = this;
    const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 8;
    const anew = shown.generation !== model.generation || shown.rank !== this.rank;
    const fresh = anew ? model.logs : model.logs.slice(Math.max(0, model.logs.length - (model.logged - shown.logged)));
    if (!anew && !fresh.length && !(output.dataset.empty && model.over)) return;
    const wanted = fresh.filter(([rank]) => this.rank === null || rank === this.rank).slice(-SHOWN);
    const rows = wanted.map((line) => row(line, this.rank === null));
    if (anew || output.dataset.empty) output.replaceChildren(...rows);
    else output.append(...rows);
    while (output.childElementCount > SHOWN) output.firstElementChild?.remove();
    attribute(output, "data-empty", !output.childElementCount);
    if (!output.childElementCount)
      output.append(h("div", { class: "ddl-dim" }, model.over ? "nothing was printed" : "nothing printed yet"));
    // Whoever scrolled up is reading; whoever is at the end follows.
    if (atEnd || anew) output.scrollTop = output.scrollHeight;
    this.shown = { generation: model.generation, logged: model.logged, rank: this.rank };
  }
}

function row([rank, level, line]: LogLine, prefixed: boolean): HTMLElement {
  const said = level === "warning" ? `⚠ ${line}` : line;
  const words = h("span", { class: "ddl-line", "data-level": level }, said || " ");
  if (!prefixed) return h("div", {}, words);
  return h("div", {}, h("span", { class: "ddl-rank" }, rank < 0 ? "·" : String(rank)), words);
}
