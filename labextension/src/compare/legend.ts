/** The legend: one entry per run with a checkbox that shows or hides it, its letter, line style, title and state. */

import type { Translation } from "../translation";
import { button, h, s, setAttribute, setNote, setText } from "../view/dom";
import { stateWord } from "../view/phases";
import type { ComparedRun } from "./comparison";
import type { LineStyle } from "./linestyle";

export interface LegendOptions {
  trans: Translation;
  /** A run was shown or hidden. */
  onToggle(): void;
  open(run: string): void;
}

export class Legend {
  readonly element: HTMLElement;
  private readonly entries: Entry[];

  constructor(runs: readonly ComparedRun[], options: LegendOptions) {
    this.entries = runs.map((run) => new Entry(run, options));
    const items = this.entries.map((entry) => entry.element);
    this.element = h("ul", { class: "ddl-legend", "aria-label": options.trans.__("Runs") }, ...items);
  }

  draw(titleOf: (run: ComparedRun) => string): void {
    for (const entry of this.entries) entry.draw(titleOf(entry.run));
  }
}

class Entry {
  readonly element: HTMLElement;
  private readonly checkbox = h("input", { type: "checkbox", checked: true });
  private readonly title = h("span", { class: "ddl-legend-name" });
  private readonly state = h("span", { class: "ddl-chip" });
  private readonly open: HTMLButtonElement;
  private readonly problem = h("p", { class: "ddl-legend-problem", role: "status" });
  private readonly trans: Translation;

  constructor(
    readonly run: ComparedRun,
    { trans, onToggle, open }: LegendOptions,
  ) {
    this.trans = trans;
    this.checkbox.addEventListener("change", () => {
      run.shown = this.checkbox.checked;
      onToggle();
    });
    this.open = button(trans.__("Open"), () => open(run.id), { class: "ddl-button" });
    const label = h("label", {}, this.checkbox, lineSample(run.style), h("b", {}, run.style.letter), this.title);
    this.element = h("li", {}, label, this.state, this.open, this.problem);
  }

  draw(title: string): void {
    const { details, follower, problem } = this.run;
    const state = follower.model.state?.state ?? details?.state ?? "";
    setText(this.title, title);
    setAttribute(this.title, "title", [title, this.run.id].join("\n"));
    setNote(this.state, stateWord(state));
    this.state.dataset.state = state;
    setAttribute(this.open, "aria-label", this.trans.__("Open %1", title));
    setNote(this.problem, problem);
  }
}

/** A short piece of a run's line. */
export function lineSample({ colour, dash }: LineStyle): SVGElement {
  const pen = {
    stroke: `var(--ddl-run-${colour})`,
    "stroke-width": 2,
    "stroke-dasharray": dash.join(" ") || undefined,
  };
  const line = s("line", { x1: 0, y1: 4, x2: 30, y2: 4, ...pen });
  return s("svg", { width: 30, height: 8, "aria-hidden": "true" }, line);
}
