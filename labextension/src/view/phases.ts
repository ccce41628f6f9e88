/** What a run does before its first step, as a row of phases: those behind it, the one that it is in, those to come. */

import { STATE_WORDS, type State } from "../generated";
import { h, setAttribute, setChildren, setVisible } from "./dom";

/** In their order; of a run that has not had to wait for its turn, without the first. */
const PHASES = ["waiting for its turn", "starting Spark", "starting the workers", "loading TensorFlow", "training"];

/** The phase of a state, until the first step. */
const PHASE_OF: Partial<Record<State, number>> = { QUEUED: 0, PREFLIGHT: 1, SUBMITTED: 2, WAITING: 2, RUNNING: 3 };

const WORDS: Readonly<Record<string, string>> = STATE_WORDS;

/** What a person reads of a state; run.state, queries and events have the state's own name. */
export function stateWord(state: string): string {
  return WORDS[state] ?? state;
}

export class Phases {
  readonly element = h("ol", { class: "ddl-phases ddl-dim", "aria-label": "phases of the run" });
  private readonly items = PHASES.map((phase) => h("li", {}, phase));

  constructor() {
    setVisible(this.element, false);
  }

  /** @param isBefore whether the run has made no step yet, and is one that will */
  draw(state: State, isBefore: boolean): void {
    const current = PHASE_OF[state];
    setVisible(this.element, isBefore && current !== undefined);
    if (current === undefined) return;
    const first = current > 0 ? 1 : 0;
    setChildren(this.element, this.items.slice(first));
    this.items.forEach((item, phase) => {
      setAttribute(item, "data-phase", phase < current ? "done" : phase === current ? "now" : "later");
      setAttribute(item, "aria-current", phase === current && "step");
    });
  }
}
