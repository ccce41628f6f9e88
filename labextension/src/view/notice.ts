/** What a reader should see before the charts: why the run failed, what it waits for, which file is being fetched. */

import type { Failure, NextStep } from "../generated";
import { copyButton, h, setNote, setText, setVisible } from "./dom";
import type { RunModel } from "./model";

const KINDS: Record<Failure["kind"], string> = {
  error: "raised an exception",
  exit: "exited",
  signal: "was killed",
  nan: "produced NaN",
  diverged: "diverged from the other ranks",
  peer: "lost the connection to other ranks",
  lost: "was lost",
  stalled: "stood still",
  spark: "failed in Spark",
};

/** States whose message is not shown: all is well. */
const QUIET: ReadonlySet<string> = new Set(["RUNNING", "FINISHED"]);

export class Notice {
  readonly element: HTMLElement;
  private readonly message = h("p", { class: "ddl-message" });
  private readonly cause = h("p", { class: "ddl-cause" });
  private readonly traceback = h("pre", { tabindex: 0, "aria-label": "traceback" });
  private readonly details = h("details", {}, h("summary", {}, "Traceback"), this.traceback);
  private readonly next = h("p", { class: "ddl-next" });
  private readonly failure = h("div", { class: "ddl-failure", role: "alert" }, this.cause, this.details);

  constructor() {
    this.element = h("div", { class: "ddl-notice" }, this.failure, this.message, this.next);
  }

  draw(model: RunModel): void {
    const { failure = null, message = "", fetching = "", state = "", next = null } = model.state ?? {};
    setVisible(this.failure, failure !== null);
    if (failure) {
      this.cause.replaceChildren(h("strong", {}, failureSummary(failure)), `: ${failure.message}`);
      setText(this.traceback, failure.traceback);
      setVisible(this.details, failure.traceback !== "");
    }
    // A failure says more than the message of its state.
    const shown = fetching || (failure || QUIET.has(state) ? "" : message);
    setNote(this.message, shown);
    this.message.dataset.state = state;
    this.drawNext(next);
    setVisible(this.element, failure !== null || shown !== "" || next !== null);
  }

  private drawNext(next: NextStep | null): void {
    setVisible(this.next, next !== null);
    const { text = "", code = "" } = next ?? {};
    if (this.next.dataset.code === code) return;
    this.next.dataset.code = code;
    this.next.replaceChildren(
      `${text} `,
      h("code", {}, code),
      " ",
      copyButton("Copy", () => code),
    );
  }
}

/** "Rank 1 on wn4 raised an exception". */
export function failureSummary({ rank, host, kind }: Failure): string {
  const who = rank < 0 ? "The job" : `Rank ${rank}`;
  return `${who}${host ? ` on ${host}` : ""} ${KINDS[kind] ?? "failed"}`;
}
