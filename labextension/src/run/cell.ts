/** The cell of a run: its source, to read and to copy. */

import type { RunActions } from "../actions";
import type { RunDetails } from "../api";
import { cellSource } from "../lab/cell";
import type { Translation } from "../translation";
import { h } from "../view/dom";
import { button } from "./button";

export function cellParts(details: RunDetails, actions: Pick<RunActions, "copyAsCell">, trans: Translation): Node[] {
  const copy = button(trans.__("Copy"), () => actions.copyAsCell(details.id));
  const head = h("div", { class: "ddl-runpage-bar" }, h("h2", {}, trans.__("Cell")), copy);
  // A focusable group: what is wider than its place can be scrolled with the keyboard.
  const props = {
    class: "ddl-code ddl-runpage-code",
    tabindex: 0,
    role: "group",
    "aria-label": trans.__("Source of the cell"),
  };
  return [head, h("pre", props, h("code", {}, cellSource(details.spec)))];
}
