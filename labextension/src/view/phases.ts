/** What a run does before its first step, as a row of phases: those behind it, the one that it is in, those to come. */

import { LOADING_STATES, STATE_WORDS, type State } from "../generated";
import { h, setAttribute, setChildren, setText, setVisible } from "./dom";
import { plural } from "./format";
import type { RunModel } from "./model";

/** In their order; of a run that has not had to wait for its turn, without the first. */
const PHASES = [
  "waiting for its turn",
  "starting Spark",
  "starting the workers",
  "loading TensorFlow",
  "building the model",
  "training",
] as const;

type Phase = (typeof PHASES)[number];

/** The phase of a state before the workers run. */
const PHASE_OF: Partial<Record<State, Phase>> = {
  QUEUED: "waiting for its turn",
  PREFLIGHT: "starting Spark",
  SUBMITTED: "starting the workers",
  WAITING: "starting the workers",
};

const WORDS: Readonly<Record<string, string>> = STATE_WORDS;

/** What a person reads of a state; run.state, queries and events have the state's own name. */
export function stateWord(state: string): string {
  return WORDS[state] ?? state;
}

const LOADING: ReadonlySet<string> = new Set(LOADING_STATES);

/** The workers that have not loaded TensorFlow yet. */
function loading(model: RunModel): number {
  const loaded = model.ranks().filter(({ info }) => info.state && !LOADING.has(info.state)).length;
  return Math.max((model.run?.workers ?? 0) - loaded, 0);
}

/** The phase of a run; null from the first step on, after the end, and of a monitor, which makes no steps. */
function phaseOf(model: RunModel): Phase | null {
  const { run, state, progress, latest } = model;
  if (!run || !state || run.strategy === "monitor") return null;
  const { fit = -1, epoch = 0, step = 0 } = progress ?? {};
  if (fit > 0 || epoch > 0 || step > 0 || Object.keys(latest).length) return null;
  if (state.state !== "RUNNING") return PHASE_OF[state.state] ?? null;
  return loading(model) ? "loading TensorFlow" : "building the model";
}

/** What a run whose workers run does until its first step: "loading TensorFlow on 2 workers"; else empty. */
export function activity(model: RunModel): string {
  const phase = phaseOf(model);
  if (model.state?.state !== "RUNNING" || !phase) return "";
  if (phase === "building the model") return (model.progress?.fit ?? -1) < 0 ? phase : "compiling the first step";
  const [left, all] = [loading(model), model.run?.workers ?? 0];
  return `${phase} on ${left < all ? `${left} of ` : ""}${plural(all, "worker")}`;
}

export class Phases {
  readonly element = h("ol", { class: "ddl-phases ddl-dim", "aria-label": "phases of the run" });
  private readonly items = PHASES.map((phase) => h("li", {}, phase));

  constructor() {
    setVisible(this.element, false);
  }

  draw(model: RunModel): void {
    const phase = phaseOf(model);
    setVisible(this.element, phase !== null);
    if (phase === null) return;
    const current = PHASES.indexOf(phase);
    setChildren(this.element, this.items.slice(current > 0 ? 1 : 0));
    this.items.forEach((item, at) => {
      setText(item, (at === current && activity(model)) || (PHASES[at] ?? ""));
      setAttribute(item, "data-phase", at < current ? "done" : at === current ? "now" : "later");
      setAttribute(item, "aria-current", at === current && "step");
    });
  }
}
