/** Why the list is empty, and what to do about it. */

import type { Translation } from "../translation";
import { button, copyButton, h, setVisible } from "../view/dom";
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

/** Two cells that start a first run as they are. */
const LOAD = "%load_ext ddl_magics";
const FIRST_RUN = `%%distributed --workers 2 --name first
import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(2000, 8)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")
model = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(x, y, epochs=5)`;

const ENABLE = "jupyter server extension enable ddl_magics.server";

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
    const styled = (text: string, onClick: () => void) => button(text, onClick, { class: "jp-mod-styled" });
    const retry = () => styled(trans.__("Try again"), actions.retry);
    const showAll = () => styled(trans.__("Show all runs"), actions.showAll);
    const titled = (title: string, text: string, ...others: HTMLElement[]) => [
      h("h3", {}, title),
      h("p", {}, text),
      ...others,
    ];
    switch (reason.kind) {
      case "loading":
        return [h("p", {}, trans.__("Loading runs …"))];
      case "none":
        return titled(
          trans.__("No runs yet"),
          trans.__("A run of any notebook appears here as soon as its cell is executed. For a first one, two cells:"),
          code(LOAD),
          code(FIRST_RUN),
          h("p", {}, trans.__("Runs are stored in %1 on the machine of Jupyter Server.", reason.store)),
        );
      case "filtered":
        return titled(trans.__("No matching runs"), this.filteredText(reason), showAll());
      case "idle":
        return titled(
          trans.__("No running runs"),
          trans._n("The only run has ended.", "All %1 runs have ended.", reason.total),
          showAll(),
        );
      case "disabled":
        return titled(
          trans.__("The server extension is not enabled"),
          trans.__("Enable it in the environment of Jupyter Server, then restart the server:"),
          code(ENABLE),
          retry(),
        );
      case "unreachable":
        return titled(
          trans.__("Jupyter Server does not respond"),
          trans.__("Runs continue without it. The panel keeps trying to connect."),
          retry(),
        );
      case "forbidden":
        return titled(
          trans.__("You are not allowed to see the runs of this server"),
          trans.__("Log in again, or ask the administrator of the server for access to ddl_magics."),
          retry(),
        );
      case "failed":
        return titled(trans.__("The runs cannot be listed"), reason.message, retry());
    }
  }

  private filteredText({ words, live, total }: Extract<EmptyReason, { kind: "filtered" }>): string {
    const { trans } = this;
    if (isQuery(words)) return trans.__("No run matches “%1”.", words);
    if (live) return trans.__("No running run has “%1” in its name, tags, state, notebook or cluster.", words);
    return trans._n(
      "The only run does not have “%2” in its name, tags, state, notebook or cluster.",
      "None of the %1 runs has “%2” in its name, tags, state, notebook or cluster.",
      total,
      words,
    );
  }
}

function code(text: string): HTMLElement {
  return h(
    "div",
    { class: "ddl-code" },
    h("pre", { tabindex: 0 }, text),
    copyButton("Copy", () => text),
  );
}
