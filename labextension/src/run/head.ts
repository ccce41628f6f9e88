/** The head of a run's page: what it is called, where it stands, and what can be done with it. */

import type { RunActions } from "../actions";
import type { ExportFormat } from "../api";
import type { Translation } from "../translation";
import { h, show, text } from "../view/dom";
import { button } from "./button";

const FORMATS: ExportFormat[] = ["csv", "json", "html"];

export interface HeadFacts {
  name: string;
  state: string;
  /** It can be stopped. */
  live: boolean;
  /** It is in the store no more. */
  removed: boolean;
}

export class Head {
  readonly element: HTMLElement;
  private readonly name = h("h1");
  private readonly state = h("span", { class: "ddl-runpage-state" });
  private readonly stop: HTMLButtonElement;
  private readonly remove: HTMLButtonElement;
  private readonly buttons: HTMLElement;

  constructor(run: string, actions: RunActions, trans: Translation) {
    this.stop = button(trans.__("Stop…"), () => actions.stop(run));
    this.remove = button(trans.__("Delete…"), () => actions.remove(run));
    const exports = FORMATS.map((format) =>
      button(
        format.toUpperCase(),
        () => actions.exportRun(run, format),
        trans.__("Export as %1", format.toUpperCase()),
      ),
    );
    this.buttons = h(
      "div",
      { class: "ddl-runpage-actions", role: "group", "aria-label": trans.__("Actions") },
      this.stop,
      button(trans.__("Open Notebook"), () => actions.openNotebook(run)),
      button(trans.__("Copy as Cell"), () => actions.copyAsCell(run)),
      h("span", { role: "group", "aria-label": trans.__("Export") }, trans.__("Export:"), " ", ...exports),
      this.remove,
    );
    this.element = h("header", { class: "ddl-runpage-head" }, h("div", {}, this.name, this.state), this.buttons);
  }

  draw({ name, state, live, removed }: HeadFacts): void {
    text(this.name, name);
    text(this.state, state);
    this.state.dataset.state = state;
    show(this.state, state !== "");
    show(this.stop, live);
    show(this.remove, state !== "" && !live);
    show(this.buttons, !removed);
  }
}
