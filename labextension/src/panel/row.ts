/** One row of the list: a run, a search, or a trial of one. */

import type { Listed } from "../api";
import type { RunRow, SearchRow } from "../generated";
import type { Translation } from "../translation";
import { h, setAttribute, setAttributes, setText, setVisible } from "../view/dom";
import { dateTime, duration } from "../view/format";
import { stateWord } from "../view/phases";
import { bestOf, dateOrTime, elapsed, location, parameters, progressOf, rowLabel, sampler, score, shownState, size, title } from "./format"; // biome-ignore format: texts
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
  private readonly began = h("span", { class: "ddl-row-began" });

  constructor(private readonly trans: Translation) {
    this.element = h(
      "li",
      { class: "ddl-row", role: "treeitem" },
      h("span", { class: "ddl-row-line" }, this.fold, this.chip, this.name, this.time),
      h("span", { class: "ddl-row-line" }, this.track, this.progress),
      h("span", { class: "ddl-row-line" }, this.loss, this.sparkline.element, this.size),
      h("span", { class: "ddl-row-line" }, this.labels, this.location, this.began),
    );
  }

  /** @param search the search that the row stands below */
  draw(row: Listed, search: SearchRow | null, now: number): void {
    this.element.id = rowId(row.id);
    setAttributes(this.element, {
      "data-run": row.id,
      "data-state": stateOf(row) ?? "UNREADABLE",
      "aria-label": rowLabel(row, search, this.trans),
    });
    this.drawHead(row, now);
    this.drawProgress(row);
    this.drawScore(row, search);
    this.drawPlace(row, search, now);
  }

  private drawHead(row: Listed, now: number): void {
    setVisible(this.fold, isSearch(row));
    setText(this.chip, stateWord(stateOf(row) ?? this.trans.__("UNREADABLE")));
    setText(this.name, title(row));
    const named = !isSearch(row) && isReadable(row) && row.title ? `${row.title} (${row.name})` : title(row);
    setAttribute(this.name, "title", named);
    const work = readable(row);
    setText(this.time, work ? duration(elapsed(work, now)) : "");
    setAttribute(this.time, "title", work ? this.trans.__("from its start, with waiting") : undefined);
  }

  private drawProgress(row: Listed): void {
    const share = isSearch(row) ? shareDone(row) : isReadable(row) ? row.fraction : null;
    setVisible(this.track, row.live && share !== null);
    this.bar.style.width = `${100 * (share ?? 0)}%`;
    const text = isSearch(row) || isReadable(row) ? progressOf(row, this.trans) : row.problem;
    setText(this.progress, text);
    setAttribute(this.progress, "title", text);
  }

  private drawScore(row: Listed, search: SearchRow | null): void {
    const { trans } = this;
    const run = isSearch(row) || !isReadable(row) ? null : row;
    setText(this.loss, isSearch(row) ? bestOf(row, trans) : run ? score(run, search, trans) : "");
    this.sparkline.draw(run?.sparkline ?? []);
    // A trial has the workers, the cluster and the notebook of its search.
    setText(this.size, run && !search ? size(run, trans) : "");
  }

  private drawPlace(row: Listed, search: SearchRow | null, now: number): void {
    const run = isSearch(row) || !isReadable(row) ? null : row;
    const work = readable(row);
    const sampled = run && search ? parameters(run) : null;
    const kind = isSearch(row) ? sampler(row, this.trans) : "";
    setText(this.location, sampled ?? [kind, work ? location(work) : ""].filter(Boolean).join(" · "));
    setAttribute(this.location, "title", sampled ?? [kind, work?.cluster, work?.notebook].filter(Boolean).join("\n"));
    setText(this.began, dateOrTime(row.created, now));
    setAttribute(this.began, "title", this.trans.__("began %1", dateTime(row.created)));
    const labels = run?.labels ?? [];
    this.labels.replaceChildren(...labels.map((label) => h("span", { class: "ddl-row-label", title: label }, label)));
  }
}

/** The run or the search of a row; null if it cannot be read. */
function readable(row: Listed): RunRow | SearchRow | null {
  return isSearch(row) || isReadable(row) ? row : null;
}

function stateOf(row: Listed): string | undefined {
  const work = readable(row);
  return work ? shownState(work) : undefined;
}

/** The share of the trials that have ended; null if it is unknown. */
function shareDone({ done, planned }: SearchRow): number | null {
  return planned === null ? null : done / Math.max(1, planned);
}

/** The element id of the row of a run or a search. */
export function rowId(id: string): string {
  return `ddl-row-${id}`;
}
