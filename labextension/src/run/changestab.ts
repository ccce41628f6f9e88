/** The tab "Changes": what differs from the previous run of the cell. */

import type { RunActions } from "../actions";
import type { Row } from "../api";
import { bodyOf } from "../cell";
import { type Difference, environmentEntries, optionEntries, rowsOf } from "../compare/differences";
import { rowElement } from "../compare/table";
import type { RunDetails, RunRow } from "../generated";
import { diffElement, diffSummary, lineDiff } from "../panel/diff";
import { dateOrTime, title } from "../panel/format";
import { isReadable } from "../panel/runlist";
import type { Translation } from "../translation";
import { h, scrollBox } from "../view/dom";
import { pageButton } from "./button";

/** The newest earlier run of the same notebook and cell, else of the same notebook and name. */
export function previousRun(run: RunRow, rows: Iterable<Row>): RunRow | undefined {
  const earlier = [...rows]
    .filter((row): row is RunRow => isReadable(row) && row.notebook === run.notebook && row.created < run.created)
    .sort((a, b) => b.created - a.created);
  const sameCell = earlier.find((row) => row.cell_id !== "" && row.cell_id === run.cell_id);
  return sameCell ?? earlier.find((row) => row.name === run.name);
}

/** The options and the environment that differ. */
export function changedRows(before: RunDetails, after: RunDetails, trans: Translation): Difference[] {
  const both = [{ details: before }, { details: after }];
  const rows = [...rowsOf(both.map(optionEntries)), ...rowsOf(both.map((run) => environmentEntries(run, trans)))];
  return rows.filter(({ differs }) => differs);
}

export interface ChangeOptions {
  /** The rows of the panel's list. */
  rows(): Iterable<Row>;
  details(run: string): Promise<RunDetails>;
  actions: Pick<RunActions, "openRun" | "compare">;
  trans: Translation;
}

export async function changeNodes(after: RunDetails, options: ChangeOptions): Promise<Node[]> {
  const { trans, actions } = options;
  const previous = previousRun(after, options.rows());
  if (!previous) return noPrevious(trans);
  const before = await options.details(previous.id);
  const lines = lineDiff(bodyOf(before.spec), bodyOf(after.spec));
  const rows = changedRows(before, after, trans);
  const titles = [titleWithTime(before), titleWithTime(after)] as const;
  return [
    head(before, after, actions, trans),
    h("h2", {}, trans.__("Cell: %1", diffSummary(lines, trans))),
    diffElement(lines, trans.__("Cells of %1 and %2, line by line", ...titles)),
    h("h2", {}, trans.__("Options and environment")),
    rows.length ? table(rows, titles, trans) : h("p", { class: "ddl-runpage-dim" }, trans.__("No differences.")),
  ];
}

function noPrevious(trans: Translation): Node[] {
  const lines = [
    trans.__("There is no earlier run of this cell in the list."),
    trans.__("Execute the cell again: the new run will show here what has changed."),
  ];
  return lines.map((line) => h("p", { class: "ddl-runpage-dim" }, line));
}

function head(before: RunRow, after: RunRow, actions: ChangeOptions["actions"], trans: Translation): HTMLElement {
  return h(
    "div",
    { class: "ddl-runpage-bar" },
    h("p", {}, trans.__("Previous run: %1", titleWithTime(before))),
    pageButton(trans.__("Open It"), () => actions.openRun(before.id)),
    pageButton(trans.__("Compare Both"), () => actions.compare([before.id, after.id])),
  );
}

/** "digits, 14:02". */
function titleWithTime(run: RunRow): string {
  return `${title(run)}, ${dateOrTime(run.created, Date.now() / 1000)}`;
}

function table(rows: readonly Difference[], titles: readonly [string, string], trans: Translation): HTMLElement {
  const heads = titles.map((text) => h("th", { scope: "col" }, text));
  const body = h("tbody", {}, ...rows.map(rowElement));
  const element = h("table", {}, h("thead", {}, h("tr", {}, h("td"), ...heads)), body);
  const label = trans.__("Options and environment that differ");
  return scrollBox("ddl-runpage-table", label, element);
}
