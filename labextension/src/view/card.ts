/** The card of a run, for a cell that ends in its variable: state, reason, numbers, buttons; the charts on request. */

import { button, h, setAttribute, setText, setVisible } from "./dom";
import { number } from "./format";
import { RunHeader } from "./header";
import { LiveView } from "./liveview";
import { Notice } from "./notice";
import { status } from "./status";
import { RunView, type RunViewOptions } from "./view";

export class RunCard extends LiveView {
  private readonly header: RunHeader;
  private readonly notice = new Notice();
  private readonly status = h("span", { class: "ddl-dim" });
  private readonly numbers = h("span", {});
  private readonly more = button("Show charts", () => this.toggle(), { class: "ddl-more", "aria-expanded": "false" });
  private readonly rest = h("div", { class: "ddl-card-rest" });
  private view: RunView | null = null;

  constructor(
    host: HTMLElement,
    private readonly options: RunViewOptions,
  ) {
    super("ddl-run ddl-card");
    this.header = new RunHeader(options.onStop);
    const line = h("div", { class: "ddl-card-line" }, this.numbers, this.status, this.more);
    this.root.append(this.header.element, this.notice.element, line, this.rest);
    this.start(host);
  }

  protected override drawNow(): void {
    const { model } = this.options;
    const { run, state, latest } = model;
    setVisible(this.header.element, run !== null && state !== null);
    setVisible(this.more, run !== null && state !== null);
    if (!run || !state) {
      setText(this.status, "Waiting for the kernel …");
      return;
    }
    this.identify(`run ${run.name}`, state.state, run.id);
    this.header.draw(model);
    this.notice.draw(model);
    setText(this.numbers, numbers(latest));
    this.tick();
    this.view?.draw();
  }

  override dispose(): void {
    super.dispose();
    this.view?.dispose();
  }

  private toggle(): void {
    if (this.view) {
      this.view.dispose();
      this.view = null;
    } else {
      this.view = new RunView(this.rest, this.options);
    }
    setText(this.more, this.view ? "Hide charts" : "Show charts");
    setAttribute(this.more, "aria-expanded", this.view ? "true" : "false");
  }

  protected override tick(): void {
    const { model } = this.options;
    if (!model.run) return;
    this.header.tick(model);
    setText(this.status, status(model));
  }
}

/** "loss 0.134, accuracy 0.970": the newest value of each metric. */
function numbers(latest: Record<string, number>): string {
  return Object.entries(latest)
    .map(([name, value]) => `${name} ${number(value)}`)
    .join(", ");
}
