/** Why the list is empty, and what to do about it. */

import type { Translation } from "../translation";
import { button, h, setVisible } from "../view/dom";
import type { Connection } from "./feed";
import { isQuery, type ListFilter } from "./listfilter";

/** The reasons; at most one of them applies. */
export type EmptyReason =
  | { kind: "loading" }
  | { kind: "none"; store: string }
  | { kind: "filtered"; words: string; live: boolean; total: number }
  | { kind: "idle"; total: number }
  | { kind: "disabled" | "unreachable" | "forbidden" | "failed"; message: string };

/** Why no row is shown; null if there are rows. */
export function emptyReason(
  connection: Connection,
  list: { total: number; store: string },
  filter: ListFilter,
  shown: number,
): EmptyReason | null {
  if (shown) return null;
  if (connection.kind !== "ready") return connection;
  if (list.total === 0) return { kind: "none", store: list.store };
  const words = filter.words.trim();
  if (words) return { kind: "filtered", words, live: filter.live, total: list.total };
  return filter.live ? { kind: "idle", total: list.total } : { kind: "loading" };
}

/** A cell that starts a first run. */
export const FIRST_RUN = `%load_ext ddl_magics

%%distributed --workers 2
model.fit(x, y, epochs=5)`;

export const ENABLE = "jupyter server extension enable ddl_magics.server";

export interface EmptyActions {
  /** Asks the server again. */
  retry(): void;
  /** Clears the filter. */
  showAll(): void;
}

export class EmptyView {
  readonly element = h("div", { class: "ddl-empty-state" });
  private drawn = "";

  constructor(
    private readonly trans: Translation,
    private readonly actions: EmptyActions,
  ) {}

  draw(reason: EmptyReason | null): void {
    setVisible(this.element, reason !== null);
    const state = JSON.stringify(reason);
    if (state === this.drawn) return;
    this.drawn = state;
    this.element.replaceChildren(...(reason ? this.content(reason) : []));
  }

  private content(reason: EmptyReason): HTMLElement[] {
    const { trans, actions } = this;
    const style = { class: "jp-mod-styled" };
    const retry = () => button(trans.__("Try again"), actions.retry, style);
    const showAll = () => button(trans.__("Show all runs"), actions.showAll, style);
    switch (reason.kind) {
      case "loading":
        return [paragraph(trans.__("Loading runs …"))];
      case "none":
        return [
          heading(trans.__("No runs yet")),
          paragraph(trans.__("A run of any notebook appears here as soon as its cell is executed:")),
          code(FIRST_RUN),
          paragraph(trans.__("Runs are stored in %1 on the machine of Jupyter Server.", reason.store), "ddl-empty-dim"),
        ];
      case "filtered":
        return [
          heading(trans.__("No matching runs")),
          paragraph(
            isQuery(reason.words)
              ? trans.__("No run matches “%1”.", reason.words)
              : reason.live
                ? trans.__("No running run has “%1” in its name, tags, state, notebook or cluster.", reason.words)
                : trans._n(
                    "The only run does not have “%2” in its name, tags, state, notebook or cluster.",
                    "None of the %1 runs has “%2” in its name, tags, state, notebook or cluster.",
                    reason.total,
                    reason.words,
                  ),
          ),
          showAll(),
        ];
      case "idle":
        return [
          heading(trans.__("No running runs")),
          paragraph(trans._n("The only run has ended.", "All %1 runs have ended.", reason.total)),
          showAll(),
        ];
      case "disabled":
        return [
          heading(trans.__("The server extension is not enabled")),
          paragraph(trans.__("Enable it in the environment of Jupyter Server, then restart the server:")),
          code(ENABLE),
          retry(),
        ];
      case "unreachable":
        return [
          heading(trans.__("Jupyter Server does not respond")),
          paragraph(trans.__("Runs continue without it. The panel keeps trying to connect.")),
          retry(),
        ];
      case "forbidden":
        return [
          heading(trans.__("You are not allowed to see the runs of this server")),
          paragraph(trans.__("Log in again, or ask the administrator of the server for access to ddl_magics.")),
          retry(),
        ];
      case "failed":
        return [heading(trans.__("The runs cannot be listed")), paragraph(reason.message), retry()];
    }
  }
}

function heading(text: string): HTMLElement {
  return h("h3", {}, text);
}

function paragraph(text: string, style?: string): HTMLElement {
  return h("p", { class: style }, text);
}

function code(text: string): HTMLElement {
  return h("pre", { tabindex: 0 }, text);
}
