/** Which line is whose: a box to switch each run off and on, with its letter, its stroke, its name and its state. */

import type { Translation } from "../translation";
import { attribute, h, show, text } from "../view/dom";
import type { Compared } from "./feed";
import type { Look } from "./look";

const SVG = "http://www.w3.org/2000/svg";

export class Legend {
  readonly element: HTMLElement;
  private readonly entries: Entry[];

  constructor(runs: readonly Compared[], trans: Translation, toggled: () => void, open: (run: string) => void) {
    this.entries = runs.map((run) => new Entry(run, trans, toggled, open));
    const items = this.entries.map((entry) => entry.element);
    this.element = h("ul", { class: "ddl-legend", "aria-label": trans.__("Runs") }, ...items);
  }

  /** `name` is what a reader calls a run. */
  draw(name: (run: Compared) => string): void {
    for (const entry of this.entries) entry.draw(name(entry.run));
  }
}

class Entry {
  readonly element: HTMLElement;
  private readonly box = h("input", { type: "checkbox", checked: true });
  private readonly name = h("span", { class: "ddl-legend-name" });
  private readonly state = h("span", { class: "ddl-chip" });
  private readonly open = h("button", { type: "button", class: "ddl-button" });
  private readonly problem = h("p", { class: "ddl-legend-problem", role: "status" });

  constructor(
    readonly run: Compared,
    private readonly trans: Translation,
    toggled: () => void,
    open: (run: string) => void,
  ) {
    this.box.addEventListener("change", () => {
      run.shown = this.box.checked;
      toggled();
    });
    this.open.addEventListener("click", () => open(run.id));
    text(this.open, trans.__("Open"));
    const label = h("label", {}, this.box, stroke(run.look), h("b", {}, run.look.letter), this.name);
    this.element = h("li", {}, label, this.state, this.open, this.problem);
  }

  draw(name: string): void {
    const { details, follower, problem } = this.run;
    const state = follower.model.state?.state ?? details?.state ?? "";
    text(this.name, name);
    attribute(this.name, "title", [name, this.run.id].join("\n"));
    text(this.state, state);
    this.state.dataset.state = state;
    show(this.state, state !== "");
    attribute(this.open, "aria-label", this.trans.__("Open %1", name));
    text(this.problem, problem);
    show(this.problem, problem !== "");
  }
}

/** A piece of the run's line. */
export function stroke({ colour, dash }: Look): SVGElement {
  const drawing = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "line");
  const fields = { x1: 0, y1: 4, x2: 30, y2: 4, stroke: `var(--ddl-run-${colour})`, "stroke-width": 2 };
  for (const [name, value] of Object.entries(fields)) line.setAttribute(name, String(value));
  if (dash.length) line.setAttribute("stroke-dasharray", dash.join(" "));
  for (const [name, value] of Object.entries({ width: 30, height: 8, "aria-hidden": true })) {
    drawing.setAttribute(name, String(value));
  }
  drawing.append(line);
  return drawing;
}
