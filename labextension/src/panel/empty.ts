/** Why there is nothing in the list, and what to do about it. */

import type { Translation } from "../translation";
import { h, show } from "../view/dom";
import type { Wish } from "./arrange";
import type { Link } from "./feed";

/** The reasons; at most one holds at a time. */
export type Emptiness =
  | { kind: "loading" }
  | { kind: "none"; store: string }
  | { kind: "filtered"; words: string; live: boolean; total: number }
  | { kind: "quiet"; total: number }
  | { kind: "off" | "gone" | "forbidden" | "failed"; message: string };

/** Why none is shown, or null where some are. */
export function emptiness(
  link: Link,
  list: { total: number; store: string },
  wish: Wish,
  shown: number,
): Emptiness | null {
  if (shown) return null;
  if (link.kind !== "ready") return link;
  if (list.total === 0) return { kind: "none", store: list.store };
  const words = wish.words.trim();
  if (words) return { kind: "filtered", words, live: wish.live, total: list.total };
  return wish.live ? { kind: "quiet", total: list.total } : { kind: "loading" };
}

/** The cell that makes a first run. */
export const FIRST_RUN = `%load_ext ddl_magics

%%distributed --workers 2
model.fit(x, y, epochs=5)`;

export const ENABLE = "jupyter server extension enable ddl_magics.server";

export interface EmptyActions {
  /** Asks the server again. */
  retry(): void;
  /** Shows all runs. */
  showAll(): void;
}

export class EmptyView {
  readonly element = h("div", { class: "ddl-empty-state" });
  private drawn = "";

  constructor(
    private readonly trans: Translation,
    private readonly actions: EmptyActions,
  ) {}

  draw(reason: Emptiness | null): void {
    show(this.element, reason !== null);
    const now = JSON.stringify(reason);
    if (now === this.drawn) return;
    this.drawn = now;
    this.element.replaceChildren(...(reason ? this.parts(reason) : []));
  }

  private parts(reason: Emptiness): HTMLElement[] {
    const { trans, actions } = this;
    switch (reason.kind) {
      case "loading":
        return [line(trans.__("Looking for runs …"))];
      case "none":
        return [
          heading(trans.__("No runs yet")),
          line(trans.__("A run appears here as soon as its cell is executed, whichever notebook it is in:")),
          code(FIRST_RUN),
          line(trans.__("Runs are looked for in %1, on the machine of Jupyter Server.", reason.store), "ddl-empty-dim"),
        ];
      case "filtered":
        return [
          heading(trans.__("No run matches")),
          line(
            reason.live
              ? trans.__("None that goes on has “%1” in its name, labels, state, notebook or cluster.", reason.words)
              : trans._n(
                  "The one run does not have “%2” in its name, labels, state, notebook or cluster.",
                  "None of the %1 runs has “%2” in its name, labels, state, notebook or cluster.",
                  reason.total,
                  reason.words,
                ),
          ),
          button(trans.__("Show all runs"), actions.showAll),
        ];
      case "quiet":
        return [
          heading(trans.__("Nothing runs")),
          line(trans._n("The one run has ended.", "All %1 runs have ended.", reason.total)),
          button(trans.__("Show all runs"), actions.showAll),
        ];
      case "off":
        return [
          heading(trans.__("The server part is not enabled")),
          line(trans.__("Jupyter Server runs without it. Enable it where the server is installed, then restart it:")),
          code(ENABLE),
          button(trans.__("Try again"), actions.retry),
        ];
      case "gone":
        return [
          heading(trans.__("Jupyter Server does not answer")),
          line(trans.__("Runs go on without it. It is asked again every now and then.")),
          button(trans.__("Try again"), actions.retry),
        ];
      case "forbidden":
        return [
          heading(trans.__("You may not see runs here")),
          line(trans.__("Log in again, or ask who runs this server for access to ddl_magics.")),
          button(trans.__("Try again"), actions.retry),
        ];
      case "failed":
        return [
          heading(trans.__("The runs cannot be listed")),
          line(reason.message),
          button(trans.__("Try again"), actions.retry),
        ];
    }
  }
}

function heading(words: string): HTMLElement {
  return h("h3", {}, words);
}

function line(words: string, style = ""): HTMLElement {
  return h("p", { ...(style && { class: style }) }, words);
}

function code(words: string): HTMLElement {
  return h("pre", { tabindex: 0 }, words);
}

function button(words: string, act: () => void): HTMLElement {
  const made = h("button", { type: "button", class: "jp-mod-styled" }, words);
  made.addEventListener("click", act);
  return made;
}
