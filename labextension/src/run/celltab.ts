/** The tab "Cell": the source of the cell. */

import type { RunActions } from "../actions";
import { cellSource } from "../cell";
import type { RunDetails } from "../generated";
import type { Translation } from "../translation";
import { h } from "../view/dom";
import { pageButton } from "./button";

export function cellNodes(details: RunDetails, actions: Pick<RunActions, "copyAsCell">, trans: Translation): Node[] {
  const copy = pageButton(trans.__("Copy"), () => actions.copyAsCell(details.id));
  const head = h("div", { class: "ddl-runpage-bar" }, h("h2", {}, trans.__("Cell")), copy);
  return [head, codeElement(cellSource(details.spec), trans.__("Source of the cell"))];
}

/** Preformatted text; focusable, so that the keyboard can scroll it. */
export function codeElement(text: string, label: string): HTMLElement {
  const attributes = { class: "ddl-code ddl-runpage-code", tabindex: 0, role: "group", "aria-label": label };
  return h("pre", attributes, h("code", {}, text));
}
