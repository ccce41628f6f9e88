/** The header of a run's page: title, state, and buttons for the actions. */

import type { RunActions } from "../actions";
import { EXPORT_FORMATS } from "../generated";
import type { Translation } from "../translation";
import { h, setNote, setText, setVisible } from "../view/dom";
import { stateWord } from "../view/phases";
import { pageButton } from "./button";

export interface HeaderContent {
  title: string;
  /** Empty if unknown. */
  state: string;
  /** Whether the run has not ended. */
  live: boolean;
  deleted: boolean;
}

export class PageHeader {
  readonly element: HTMLElement;
  private readonly title = h("h1");
  private readonly state = h("span", { class: "ddl-runpage-state" });
  private readonly stop: HTMLButtonElement;
  private readonly delete: HTMLButtonElement;
  private readonly buttons: HTMLElement;

  constructor(run: string, actions: RunActions, trans: Translation) {
    this.stop = pageButton(trans.__("Stop…"), () => actions.stop(run));
    this.delete = pageButton(trans.__("Delete…"), () => actions.delete(run));
    const exports = EXPORT_FORMATS.map((format) => {
      const name = format.toUpperCase();
      return pageButton(name, () => actions.exportRun(run, format), trans.__("Export as %1", name));
    });
    this.buttons = h(
      "div",
      { class: "ddl-runpage-actions", role: "group", "aria-label": trans.__("Actions") },
      this.stop,
      pageButton(trans.__("Open Notebook"), () => actions.openNotebook(run)),
      pageButton(trans.__("Copy as Cell"), () => actions.copyAsCell(run)),
      h("span", { role: "group", "aria-label": trans.__("Export") }, trans.__("Export:"), " ", ...exports),
      this.delete,
    );
    this.element = h("header", { class: "ddl-runpage-head" }, h("div", {}, this.title, this.state), this.buttons);
  }

  draw({ title, state, live, deleted }: HeaderContent): void {
    setText(this.title, title);
    setNote(this.state, stateWord(state));
    this.state.dataset.state = state;
    setVisible(this.stop, live);
    setVisible(this.delete, state !== "" && !live);
    setVisible(this.buttons, !deleted);
  }
}
