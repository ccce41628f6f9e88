/** What a reader must know before the charts: why the run waits, why it failed, where it went. */

import { h, show, text } from "./dom";
import type { Failure } from "./messages";
import type { RunModel } from "./model";

const KINDS: Record<NonNullable<Failure>["kind"], string> = {
  error: "raised an exception",
  exit: "ended by itself",
  signal: "was killed",
  nan: "came to a value that is not a number",
  diverged: "left the common path",
  peer: "lost its peers",
  lost: "was lost",
  spark: "was failed by Spark",
};

const QUIET = new Set(["RUNNING", "FINISHED"]);

export class Notice {
  readonly element: HTMLElement;
  private readonly message = h("p", { class: "ddl-message" });
  private readonly cause = h("p", { class: "ddl-cause" });
  private readonly traceback = h("pre", { tabindex: 0, "aria-label": "traceback" });
  private readonly details = h("details", {}, h("summary", {}, "Traceback"), this.traceback);
  private readonly failure = h("div", { class: "ddl-failure", role: "alert" }, this.cause, this.details);

  constructor() {
    this.element = h("div", { class: "ddl-notice" }, this.failure, this.message);
  }

  draw(model: RunModel): void {
    const failure = model.state?.failure ?? null;
    const said = model.state?.message ?? "";
    show(this.failure, failure !== null);
    if (failure) {
      this.cause.replaceChildren(h("strong", {}, culprit(failure)), `: ${failure.message}`);
      text(this.traceback, failure.traceback);
      show(this.details, failure.traceback !== "");
    }
    // The failure says it better than the state's one line, and that all is well needs no line.
    const quiet = failure || QUIET.has(model.state?.state ?? "");
    const message = model.state?.fetching || (quiet ? "" : said);
    text(this.message, message);
    this.message.dataset.state = model.state?.state ?? "";
    show(this.message, message !== "");
    show(this.element, failure !== null || message !== "");
  }
}

/** "Rank 1 on wn4 raised an exception". */
export function culprit(failure: NonNullable<Failure>): string {
  const who = failure.rank < 0 ? "The job" : `Rank ${failure.rank}`;
  return `${who}${failure.host ? ` on ${failure.host}` : ""} ${KINDS[failure.kind] ?? "failed"}`;
}
