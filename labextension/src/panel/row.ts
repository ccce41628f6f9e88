/** One row of the list. */

import type { Row, Run, UnreadableRun } from "../api";
import type { Translation } from "../translation";
import { attribute, h, show, text } from "../view/dom";
import { duration, number } from "../view/format";
import { readable } from "./runlist";
import { Sparkline } from "./sparkline";
import { elapsed, place, progress, spoken, title, when, workers } from "./words";

export class RowView {
  readonly element: HTMLElement;
  private readonly chip = h("span", { class: "ddl-row-state" });
  private readonly name = h("span", { class: "ddl-row-name" });
  private readonly time = h("span", { class: "ddl-row-time" });
  private readonly bar = h("span", { class: "ddl-row-bar" });
  private readonly track = h("span", { class: "ddl-row-track" }, this.bar);
  private readonly far = h("span", { class: "ddl-row-far" });
  private readonly loss = h("span", { class: "ddl-row-loss" });
  private readonly spark = new Sparkline();
  private readonly size = h("span", { class: "ddl-row-size" });
  private readonly place = h("span", { class: "ddl-row-place" });
  private readonly labels = h("span", { class: "ddl-row-labels" });

  constructor(private readonly trans: Translation) {
    this.element = h(
      "li",
      { class: "ddl-row", role: "option" },
      h("span", { class: "ddl-row-line" }, this.chip, this.name, this.time),
      h("span", { class: "ddl-row-line" }, this.track, this.far),
      h("span", { class: "ddl-row-line" }, this.loss, this.spark.element, this.size),
      h("span", { class: "ddl-row-line" }, this.labels, this.place),
    );
  }

  draw(row: Row, now: number): void {
    const { trans } = this;
    this.element.id = rowId(row.id);
    attribute(this.element, "data-run", row.id);
    attribute(this.element, "aria-label", spoken(row, trans));
    attribute(this.element, "data-state", readable(row) ? row.state : "UNREADABLE");
    text(this.name, title(row));
    attribute(this.name, "title", readable(row) && row.title ? `${row.title} (${row.name})` : title(row));
    if (readable(row)) this.drawRun(row, now);
    else this.drawUnreadable(row, now);
  }

  private drawUnreadable(row: UnreadableRun, now: number): void {
    const { trans } = this;
    text(this.chip, trans.__("UNREADABLE"));
    text(this.time, when(row.created, new Date(now * 1000)));
    show(this.track, false);
    this.say(row.problem);
    for (const part of [this.loss, this.size, this.place]) text(part, "");
    this.spark.draw([]);
    this.labels.replaceChildren();
  }

  private drawRun(run: Run, now: number): void {
    const { trans } = this;
    text(this.chip, run.state);
    text(this.time, run.live ? duration(elapsed(run, now)) : when(run.created, new Date(now * 1000)));
    show(this.track, run.live && run.fraction !== null);
    this.bar.style.width = `${(run.fraction ?? 0) * 100}%`;
    this.say(progress(run, trans));
    text(this.loss, run.loss === null ? "" : trans.__("loss %1", number(run.loss)));
    this.spark.draw(run.spark);
    text(this.size, run.workers === null ? "" : workers(run.workers, trans));
    text(this.place, place(run));
    attribute(this.place, "title", [run.cluster, run.notebook].filter(Boolean).join("\n"));
    this.labels.replaceChildren(
      ...run.labels.map((label) => h("span", { class: "ddl-row-label", title: label }, label)),
    );
  }

  private say(words: string): void {
    text(this.far, words);
    attribute(this.far, "title", words);
  }
}

/** The id of a run's row in the document. */
export function rowId(run: string): string {
  return `ddl-row-${run}`;
}
