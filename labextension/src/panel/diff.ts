/** Two texts line by line: what one has and the other has not. */

import { diffLines } from "diff";
import type { Translation } from "../translation";
import { h } from "../view/dom";
import "./diff.css";

/** Beyond so many edits a diff would take long and say little: then one text stands below the other. */
const MOST_EDITS = 1000;

export interface DiffLine {
  change: "same" | "removed" | "added";
  text: string;
}

/** The lines of both texts in one order. A missing newline at the end is no difference. */
export function lineDiff(before: string, after: string): DiffLine[] {
  const [from, to] = [whole(before), whole(after)];
  const parts = diffLines(from, to, { maxEditLength: MOST_EDITS }) ?? [
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

/** How many lines differ, in words. */
export function diffWords(lines: readonly DiffLine[], trans: Translation): string {
  const count = (change: DiffLine["change"]) => lines.filter((line) => line.change === change).length;
  const [removed, added] = [count("removed"), count("added")];
  if (!removed && !added) return trans.__("no line differs");
  const parts: string[] = [];
  if (removed) parts.push(trans._n("%1 line removed", "%1 lines removed", removed));
  if (added) parts.push(trans._n("%1 line added", "%1 lines added", added));
  return parts.join(", ");
}

const SIGNS: Record<DiffLine["change"], string> = { same: " ", removed: "−", added: "+" };

/** The lines with their signs; `label` names it for those who hear it. */
export function diffElement(lines: readonly DiffLine[], label: string): HTMLElement {
  // A focusable group: what is wider than its place can be scrolled with the keyboard.
  const rows = lines.map(({ change, text }) =>
    h("div", { "data-change": change }, h("span", { class: "ddl-diff-sign" }, SIGNS[change]), h("code", {}, text)),
  );
  return h("div", { class: "ddl-diff", role: "group", "aria-label": label, tabindex: 0 }, h("div", {}, ...rows));
}

function whole(text: string): string {
  return text === "" || text.endsWith("\n") ? text : `${text}\n`;
}
