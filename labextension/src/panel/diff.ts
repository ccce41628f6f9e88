/** A line-by-line diff of two texts. */

import { diffLines } from "diff";
import type { Translation } from "../translation";
import { h, scrollBox } from "../view/dom";
import "./diff.css";

/** Beyond this number of edits a diff takes long and helps little: then all lines are removed and added. */
const MAX_EDITS = 1000;

export interface DiffLine {
  change: "same" | "removed" | "added";
  text: string;
}

/** The lines of both texts in one order. A missing newline at the end makes no difference. */
export function lineDiff(before: string, after: string): DiffLine[] {
  const [from, to] = [withNewline(before), withNewline(after)];
  const parts = diffLines(from, to, { maxEditLength: MAX_EDITS }) ?? [
    { value: from, removed: true, added: false },
    { value: to, removed: false, added: true },
  ];
  return parts.flatMap(({ value, removed, added }) => {
    const change = removed ? "removed" : added ? "added" : "same";
    return value
      .split("\n")
      .slice(0, -1)
      .map((text): DiffLine => ({ change, text }));
  });
}

/** "1 line removed, 2 lines added". */
export function diffSummary(lines: readonly DiffLine[], trans: Translation): string {
  const count = (change: DiffLine["change"]) => lines.filter((line) => line.change === change).length;
  const [removed, added] = [count("removed"), count("added")];
  if (!removed && !added) return trans.__("no differences");
  const parts: string[] = [];
  if (removed) parts.push(trans._n("%1 line removed", "%1 lines removed", removed));
  if (added) parts.push(trans._n("%1 line added", "%1 lines added", added));
  return parts.join(", ");
}

const SIGNS: Record<DiffLine["change"], string> = { same: " ", removed: "−", added: "+" };

/** The lines with their signs; `label` is for screen readers. */
export function diffElement(lines: readonly DiffLine[], label: string): HTMLElement {
  const rows = lines.map(({ change, text }) =>
    h("div", { "data-change": change }, h("span", { class: "ddl-diff-sign" }, SIGNS[change]), h("code", {}, text)),
  );
  return scrollBox("ddl-diff", label, h("div", {}, ...rows));
}

function withNewline(text: string): string {
  return text === "" || text.endsWith("\n") ? text : `${text}\n`;
}
