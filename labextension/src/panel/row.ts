/** One row of the list: a run, a search, or a trial of one. */

import type { Listed } from "../api";
import type { RunRow, SearchRow, UnreadableRun } from "../generated";
import type { Translation } from "../translation";
import { h, setAttribute, setText, setVisible } from "../view/dom";
import { duration } from "../view/format";
import { bestOf, dateOrTime, elapsed, location, parameters, progress, rowLabel, score, searchProgress, size, title } from "./format"; // biome-ignore format: texts
import { isReadable, isSearch } from "./runlist";
import { Sparkline } from "./sparkline";

export class RowView {
  readonly element: HTMLElement;
  /** Hidden from screen readers, as the row says whether it is expanded. */
  private readonly fold = h("span", { class: "ddl-row-fold", "aria-hidden": "true" });
  private readonly chip = h("span", { class: "ddl-row-state" });
  private readonly name = h("span", { class: "ddl-row-name" });
  private readonly time = h("span", { class: "ddl-row-time" });
  private readonly bar = h("span", { class: "ddl-row-bar" });
  private readonly track = h("span", { class: "ddl-row-track" }, this.bar);
  private readonly progress = h("span", { class: "ddl-row-progress" });
  private readonly loss = h("span", { class: "ddl-row-loss" });
  private readonly sparkline = new Sparkline();
  private readonly size = h("span", { class: "ddl-row-size" });
  private readonly location = h("span", { class: "ddl-row-location" });
  private readonly labels = h("span", { class: "ddl-row-labels" });

  constructor(private readonly trans: Translation) {
    this.element = h(
      "li",
      { class: "ddl-row", role: "treeitem" },
      h("span", { class: "ddl-row-line" }, this.fold, this.chip, this.name, this.time),
      h("span", { class: "ddl-row-line" }, this.track, this.progress),
      h("span", { class: "ddl-row-line" }, this.loss, this.sparkline.element, this.size),
      h("span", { class: "ddl-row-line" }, this.labels, this.location),
    );
  }

  /** @param search the search that the row stands below */
  draw(row: Listed, search: SearchRow | null, now: number): void {
    this.element.id = rowId(row.id);
    setAttribute(this.element, "data-run", row.id);
    setAttribute(this.element, "aria-label", rowLabel(row, search, this.trans));
    setVisible(this.fold, isSearch(row));
    setText(this.name, title(row));
    if (isSearch(row)) this.drawSearch(row, now);
    else if (isReadable(row)) this.drawRun(row, search, now);
    else this.drawUnreadable(row, now);
  }

  private drawSearch(row: SearchRow, now: number): void {
    const { trans } = this;
    setAttribute(this.element, "data-state", row.state);
    setAttribute(this.name, "title", row.name);
    setText(this.chip, row.state);
    setText(this.time, row.live ? duration(elapsed(row, now)) : dateOrTime(row.created, new Date(now * 1000)));
    setVisible(this.track, row.live && row.planned !== null);
    this.bar.style.width = `${(100 * row.done) / Math.max(1, row.planned ?? 0)}%`;
    this.drawProgress(searchProgress(row, trans));
    setText(this.loss, bestOf(row, trans));
    this.sparkline.draw([]);
    setText(this.size, row.search ?? "");
    this.drawLocation(location(row), [row.cluster, row.notebook]);
    this.labels.replaceChildren();
  }

  private drawUnreadable(row: UnreadableRun, now: number): void {
    setAttribute(this.element, "data-state", "UNREADABLE");
    setAttribute(this.name, "title", title(row));
    setText(this.chip, this.trans.__("UNREADABLE"));
    setText(this.time, dateOrTime(row.created, new Date(now * 1000)));
    setVisible(this.track, false);
    this.drawProgress(row.problem);
    for (const part of [this.loss, this.size, this.location]) setText(part, "");
    this.sparkline.draw([]);
    this.labels.replaceChildren();
  }

  private drawRun(run: RunRow, search: SearchRow | null, now: number): void {
    const { trans } = this;
    setAttribute(this.element, "data-state", run.state);
    setAttribute(this.name, "title", run.title ? `${run.title} (${run.name})` : title(run));
    setText(this.chip, run.state);
    // Of a trial, how long it took tells more than when it began.
    const date = () => dateOrTime(run.created, new Date(now * 1000));
    setText(this.time, run.live || search ? duration(elapsed(run, now)) : date());
    setVisible(this.track, run.live && run.fraction !== null);
    this.bar.style.width = `${(run.fraction ?? 0) * 100}%`;
    this.drawProgress(progress(run, trans));
    setText(this.loss, score(run, search, trans));
    this.sparkline.draw(run.sparkline);
    setText(this.size, size(run, trans));
    // A trial has the cluster and the notebook of its search.
    if (search) this.drawLocation(parameters(run), [parameters(run)]);
    else this.drawLocation(location(run), [run.cluster, run.notebook]);
    this.labels.replaceChildren(
      ...run.labels.map((label) => h("span", { class: "ddl-row-label", title: label }, label)),
    );
  }

  private drawLocation(text: string, details: string[]): void {
    setText(this.location, text);
    setAttribute(this.location, "title", details.filter(Boolean).join("\n"));
  }

  private drawProgress(text: string): void {
    setText(this.progress, text);
    setAttribute(this.progress, "title", text);
  }
}

/** The element id of the row of a run or a search. */
export function rowId(id: string): string {
  return `ddl-row-${id}`;
}
