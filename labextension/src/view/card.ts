/** The card of a run, for a cell that ends in its variable: state, reason, numbers, buttons; the charts on request. */

import { h, setAttribute, setText, setVisible } from "./dom";
import { number } from "./format";
import { Header } from "./header";
import { keepKeys } from "./keys";
import { RunModel } from "./model";
import { Notice } from "./notice";
import { status } from "./status";
import { isDark, onThemeChange } from "./theme";
import { RunView, type RunViewOptions } from "./view";

const CLOCK_MS = 1000;

export class RunCard {
  private readonly model: RunModel;
  private readonly options: RunViewOptions;
  private readonly root: HTMLElement;
  private readonly header: Header;
  private readonly notice = new Notice();
  private readonly status = h("span", { class: "ddl-dim" });
  private readonly numbers = h("span", {});
  private readonly more = h("button", { class: "ddl-more", type: "button", "aria-expanded": "false" }, "Show charts");
  private readonly line = h("div", { class: "ddl-card-line" }, this.numbers, this.status, this.more);
  private readonly rest = h("div", { class: "ddl-card-rest" });
  private readonly removeThemeListener: () => void;
  private readonly clock: ReturnType<typeof setInterval>;
  private view: RunView | null = null;

  constructor(element: HTMLElement, options: RunViewOptions) {
    this.options = options;
    this.model = options.model ?? new RunModel();
    this.header = new Header(options.onStop);
    const parts = [this.header.element, this.notice.element, this.line, this.rest];
    this.root = h("section", { class: "ddl-run ddl-card" }, ...parts);
    keepKeys(this.root);
    element.append(this.root);
    this.more.addEventListener("click", () => this.toggle());
    this.removeThemeListener = onThemeChange(() => this.recolour());
    this.clock = setInterval(() => this.tick(), CLOCK_MS);
    this.recolour();
    this.draw();
  }

  /** Draws the model. */
  draw(): void {
    const { run, state, latest } = this.model;
    setVisible(this.header.element, run !== null && state !== null);
    setVisible(this.more, run !== null && state !== null);
    if (!run || !state) {
      setText(this.status, "Waiting for the kernel …");
      return;
    }
    setAttribute(this.root, "aria-label", `run ${run.name}`);
    setAttribute(this.root, "data-state", state.state);
    setAttribute(this.root, "data-run", run.id);
    this.header.draw(this.model);
    this.notice.draw(this.model);
    setText(this.numbers, numbers(latest));
    this.tick();
    this.view?.draw();
  }

  /** Removes the card from the document. */
  dispose(): void {
    clearInterval(this.clock);
    this.removeThemeListener();
    this.view?.dispose();
    this.root.remove();
  }

  private toggle(): void {
    if (this.view) {
      this.view.dispose();
      this.view = null;
    } else {
      this.view = new RunView(this.rest, { ...this.options, model: this.model });
    }
    setText(this.more, this.view ? "Hide charts" : "Show charts");
    setAttribute(this.more, "aria-expanded", this.view ? "true" : "false");
  }

  private tick(): void {
    if (!this.model.run) return;
    this.header.tick(this.model);
    setText(this.status, status(this.model));
  }

  private recolour(): void {
    setAttribute(this.root, "data-dark", String(isDark()));
  }
}

/** "loss 0.134, accuracy 0.970": the newest value of each metric. */
function numbers(latest: Record<string, number>): string {
  return Object.entries(latest)
    .map(([name, value]) => `${name} ${number(value)}`)
    .join(", ");
}
