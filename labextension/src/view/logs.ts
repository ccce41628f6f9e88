/** What the ranks printed: the lines of all ranks, or of one. */

import type { LogLine } from "../generated";
import { button, createSelect, h, type Option, setAttribute, setOptions, setText, setVisible } from "./dom";
import { focusOn, roving } from "./keys";
import type { RunModel } from "./model";

/** Above this number of ranks, a select replaces the tabs. */
const MAX_TABS = 16;

/** Maximum number of lines in the document. */
const MAX_SHOWN = 500;

let views = 0;

export class Logs {
  readonly element: HTMLElement;
  private readonly id = `ddl-log-${views++}`;
  private readonly tabs = h("div", { class: "ddl-tabs", role: "tablist", "aria-label": "printed lines" });
  private readonly select: HTMLSelectElement;
  private readonly selectElement: HTMLElement;
  private readonly status = h("span", { class: "ddl-dim ddl-status" });
  private readonly output = h("div", { class: "ddl-log", role: "tabpanel", tabindex: 0, id: this.id });
  private rank: number | null = null;
  private ranks = -1;
  /** What is in the document. */
  private drawn: Pick<RunModel, "generation" | "logged"> & { rank: number | null };
  private model: RunModel | null = null;
  /** Whether new lines are followed: the reader has not scrolled up. */
  private following = true;

  /** @param onSelect gets the rank whose lines the reader selected; null: all ranks */
  constructor(private readonly onSelect: (rank: number | null) => void) {
    this.drawn = { generation: -1, logged: 0, rank: null };
    [this.select, this.selectElement] = createSelect("rank whose lines are shown");
    this.select.addEventListener("change", () =>
      this.selectRank(this.select.value === "" ? null : Number(this.select.value)),
    );
    this.output.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.output;
      this.following = scrollHeight - scrollTop - clientHeight < 8;
    });
    roving(this.tabs);
    const bar = h("div", { class: "ddl-logbar" }, this.tabs, this.selectElement, this.status);
    this.element = h("div", { class: "ddl-logs" }, bar, this.output);
  }

  /** Shows the lines of one rank; null: of all ranks. */
  selectRank(rank: number | null): void {
    if (rank === this.rank) return;
    this.rank = rank;
    if (this.model) this.draw(this.model);
    this.onSelect(rank);
  }

  draw(model: RunModel): void {
    this.model = model;
    this.drawSelection(model.rankEnd);
    this.drawLines(model);
  }

  /** Scrolls to the newest line, unless the reader has scrolled up. */
  scroll(): void {
    if (this.following) this.output.scrollTop = this.output.scrollHeight;
  }

  /** Draws the status line, which is beside the tabs. */
  drawStatus(status: string, silent: boolean): void {
    setText(this.status, status);
    setAttribute(this.status, "data-silent", silent);
  }

  private drawSelection(ranks: number): void {
    const few = ranks <= MAX_TABS;
    if (ranks !== this.ranks) {
      this.ranks = ranks;
      const all = Array.from({ length: ranks }, (_, rank) => rank);
      const ofRanks = ranks > 1 ? all.map((rank) => this.tab(rank)) : [];
      if (few) this.tabs.replaceChildren(this.tab(null, ranks), ...ofRanks);
      setOptions(this.select, [["", "All ranks"], ...all.map((rank): Option => [String(rank), `rank ${rank}`])]);
    }
    setVisible(this.tabs, few);
    setVisible(this.selectElement, !few);
    const selected = this.rank === null ? "" : String(this.rank);
    if (this.select.value !== selected) this.select.value = selected;
    const tabs = [...this.tabs.querySelectorAll("button")];
    const current = this.rank === null ? 0 : this.rank + 1;
    tabs.forEach((tab, i) => {
      setAttribute(tab, "aria-selected", String(i === current));
    });
    if (!this.tabs.contains(document.activeElement)) focusOn(tabs, current);
    const whole = ranks > 1 ? "printed by all ranks" : "printed lines";
    setAttribute(this.output, "aria-label", this.rank === null ? whole : `printed by rank ${this.rank}`);
  }

  /** @param ranks of the run: a monitor has none */
  private tab(rank: number | null, ranks = 0): HTMLButtonElement {
    const title = rank !== null ? String(rank) : ranks > 1 ? "All ranks" : "Output";
    const label = rank === null ? undefined : `rank ${rank}`;
    return button(title, () => this.selectRank(rank), { role: "tab", "aria-controls": this.id, "aria-label": label });
  }

  private drawLines(model: RunModel): void {
    const { output, drawn } = this;
    const wasEmpty = output.dataset.empty !== undefined;
    const anew = drawn.generation !== model.generation || drawn.rank !== this.rank;
    const added = anew ? model.logs : model.logs.slice(Math.max(0, model.logs.length - (model.logged - drawn.logged)));
    if (!anew && !added.length && !(wasEmpty && model.over)) return;
    const lines = added.filter(([rank]) => this.rank === null || rank === this.rank).slice(-MAX_SHOWN);
    const rows = lines.map((line) => lineElement(line, this.rank === null));
    if (anew || wasEmpty) output.replaceChildren(...rows);
    else output.append(...rows);
    while (output.childElementCount > MAX_SHOWN) output.firstElementChild?.remove();
    setAttribute(output, "data-empty", !output.childElementCount);
    if (!output.childElementCount) {
      output.append(h("div", { class: "ddl-dim" }, model.over ? "nothing was printed" : "nothing printed yet"));
    }
    this.following ||= anew;
    this.scroll();
    this.drawn = { generation: model.generation, logged: model.logged, rank: this.rank };
  }
}

function lineElement([rank, level, line]: LogLine, withRank: boolean): HTMLElement {
  const text = level === "warning" ? `⚠ ${line}` : line;
  const element = h("span", { class: "ddl-line", "data-level": level }, text || " ");
  if (!withRank) return h("div", {}, element);
  return h("div", {}, h("span", { class: "ddl-rank" }, rank < 0 ? "·" : String(rank)), element);
}
