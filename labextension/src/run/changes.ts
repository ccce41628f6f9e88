/** What is not as it was in the run before: lines of the cell, options, surroundings. */

import type { RunActions } from "../actions";
import type { Row, Run, RunDetails } from "../api";
import { type Difference, options, rowsOf, surroundings } from "../compare/differences";
import { diffElement, diffWords, lineDiff } from "../panel/diff";
import { readable } from "../panel/runlist";
import { title, when } from "../panel/words";
import type { Translation } from "../translation";
import { h } from "../view/dom";
import { button } from "./button";

/** The newest earlier run of this notebook that is of the same cell; where there is none, that has the same name. */
export function previous(run: Run, rows: Iterable<Row>): Run | undefined {
  const earlier = [...rows]
    .filter((row): row is Run => readable(row) && row.notebook === run.notebook && row.created < run.created)
    .sort((a, b) => b.created - a.created);
  const ofCell = earlier.find((row) => row.cell_id !== "" && row.cell_id === run.cell_id);
  return ofCell ?? earlier.find((row) => row.name === run.name);
}

/** Options and surroundings that are not the same. */
export function changed(before: RunDetails, after: RunDetails, trans: Translation): Difference[] {
  const both = [{ details: before }, { details: after }];
  const rows = [...rowsOf(both.map(options)), ...rowsOf(both.map((one) => surroundings(one, trans)))];
  return rows.filter(({ differs }) => differs);
}

export interface ChangeOptions {
  rows(): Iterable<Row>;
  details(run: string): Promise<RunDetails>;
  actions: Pick<RunActions, "openRun" | "compare">;
  trans: Translation;
}

export async function changeParts(after: RunDetails, options: ChangeOptions): Promise<Node[]> {
  const { trans, actions } = options;
  const row = previous(after, options.rows());
  if (!row) return nothing(trans);
  const before = await options.details(row.id);
  const lines = lineDiff(String(before.spec.cell ?? ""), String(after.spec.cell ?? ""));
  const rows = changed(before, after, trans);
  const names = [named(before), named(after)] as const;
  return [
    head(before, after, actions, trans),
    h("h2", {}, trans.__("Cell: %1", diffWords(lines, trans))),
    diffElement(lines, trans.__("Cells of %1 and %2, line by line", ...names)),
    h("h2", {}, trans.__("Options and surroundings")),
    rows.length ? table(rows, names, trans) : h("p", { class: "ddl-runpage-dim" }, trans.__("Nothing differs.")),
  ];
}

function nothing(trans: Translation): Node[] {
  const words = [
    trans.__("There is no earlier run of this cell in the list."),
    trans.__("Run it again, and the new run says here what is not as it was in this one."),
  ];
  return words.map((line) => h("p", { class: "ddl-runpage-dim" }, line));
}

function head(before: Run, after: Run, actions: ChangeOptions["actions"], trans: Translation): HTMLElement {
  const open = button(trans.__("Open It"), () => actions.openRun(before.id));
  const compare = button(trans.__("Compare Both"), () => actions.compare([before.id, after.id]));
  return h(
    "div",
    { class: "ddl-runpage-bar" },
    h("p", {}, trans.__("The run before: %1", named(before))),
    open,
    compare,
  );
}

/** "digits, 14:02". */
function named(run: Run): string {
  return `${title(run)}, ${when(run.created, new Date())}`;
}

function table(rows: readonly Difference[], names: readonly [string, string], trans: Translation): HTMLElement {
  const heads = names.map((name) => h("th", { scope: "col" }, name));
  const lines = rows.map(({ name, values }) =>
    h("tr", {}, h("th", { scope: "row" }, name), ...values.map((value) => h("td", {}, value))),
  );
  const made = h("table", {}, h("thead", {}, h("tr", {}, h("td"), ...heads)), h("tbody", {}, ...lines));
  const label = trans.__("Options and surroundings that differ");
  return h("div", { class: "ddl-runpage-table", tabindex: 0, role: "group", "aria-label": label }, made);
}
