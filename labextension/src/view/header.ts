/** The header of a run or of a search: state, name, times, the Stop button and the progress bar. */

import { STRATEGY_TITLES, type State } from "../generated";
import { h, setAttribute, setAttributes, setText, setVisible } from "./dom";
import { duration, plural, workerCount } from "./format";
import type { RunModel } from "./model";
import { stateWord } from "./phases";
import { isSilent } from "./status";

/** Stop can be clicked again if the run is not stopping after this time. */
const STOP_AGAIN_MS = 10_000;

/** From this share on, a run whose estimate was exceeded is "nearly done". */
const NEARLY = 0.9;

/** From this share of the time on, the waiting before the training is told apart. */
const WORTH_TELLING = 0.1;

const STRATEGIES: Record<string, string> = STRATEGY_TITLES;

export class Header {
  readonly element: HTMLElement;
  readonly times = h("span", { class: "ddl-dim ddl-times" });
  readonly stop = h("button", { class: "ddl-stop", type: "button" }, "Stop");
  private readonly chip = h("span", { class: "ddl-chip" });
  private readonly name = h("strong", { class: "ddl-name" });
  private readonly facts = h("span", { class: "ddl-dim" });
  private readonly hint: HTMLElement;
  private readonly fill = h("i");
  private readonly bar: HTMLElement;

  /**
   * @param noun what can be stopped: "run" or "search"
   * @param progress what the bar shows, for screen readers
   */
  constructor(noun: string, progress: string) {
    this.hint = h("span", { class: "ddl-dim ddl-hint" }, `To stop the ${noun}, use the notebook's stop button ■`);
    const attributes = { class: "ddl-bar", role: "progressbar", "aria-label": progress, "aria-valuemin": 0 };
    this.bar = h("div", attributes, this.fill);
    const title = h("div", { class: "ddl-title" }, this.chip, this.name, this.facts);
    const right = h("div", { class: "ddl-right" }, this.times, this.hint, this.stop);
    this.element = h("header", {}, h("div", { class: "ddl-head" }, title, right), this.bar);
  }

  drawTitle(state: State, name: string, facts: readonly string[]): void {
    setText(this.chip, stateWord(state));
    for (const { dataset } of [this.chip, this.bar]) dataset.state = state;
    setText(this.name, name);
    setText(this.facts, facts.filter(Boolean).join(" · "));
  }

  /** Draws the progress; null if it is unknown: the bar moves to and fro. */
  drawBar(done: number | null, planned: number): void {
    this.fill.style.width = done === null ? "22%" : `${(100 * done) / Math.max(1, planned)}%`;
    setAttribute(this.bar, "aria-valuenow", done === null ? undefined : Math.round(done));
    setAttribute(this.bar, "aria-valuemax", planned);
    setAttribute(this.bar, "data-unknown", done === null);
  }

  /**
   * @param waiting the cell blocks: only the notebook can stop it
   * @param silent the kernel does not answer: it would not get the click
   */
  drawStop(over: boolean, waiting: boolean, stopping: boolean, silent = false): void {
    setVisible(this.stop, !over && !waiting);
    setVisible(this.hint, !over && waiting);
    setText(this.stop, stopping ? "Stopping…" : "Stop");
    setAttributes(this.stop, { disabled: stopping || silent, title: silent && "The kernel does not answer" });
  }
}

export class RunHeader extends Header {
  /** When Stop was clicked, in milliseconds; 0 if it was not. */
  private stopClicked = 0;

  constructor(onStop: () => void) {
    super("run", "progress of the run");
    this.stop.addEventListener("click", () => {
      this.stopClicked = Date.now();
      onStop();
    });
  }

  draw(model: RunModel): void {
    const { run, state, progress } = model;
    if (!run || !state) return;
    const strategy = STRATEGIES[run.strategy] ?? run.strategy;
    const workers = ["single", "monitor"].includes(run.strategy) ? "" : workerCount(run);
    this.drawTitle(state.state, run.name, [strategy, workers, run.cluster, held(model)]);
    const share = fraction(state.state, progress?.fraction ?? 0, state.ready, state.needed);
    this.drawBar(share === null ? null : 100 * share, 100);
    this.tick(model);
  }

  /** Redraws what depends on the clock. */
  tick(model: RunModel): void {
    setText(this.times, times(model));
    if (this.stopClicked && Date.now() - this.stopClicked > STOP_AGAIN_MS) {
      this.stopClicked = 0;
    }
    const { run, state, over } = model;
    const stopping = state?.state === "STOPPING" || this.stopClicked > 0;
    this.drawStop(over, run?.waiting ?? false, stopping, isSilent(model));
  }
}

/** "holds 3 executors": of a run in progress, where workers come and go. */
function held({ state, over }: RunModel): string {
  const executors = state?.executors ?? null;
  return over || executors === null ? "" : `holds ${plural(executors, "executor")}`;
}

/** The filled share of the bar, 0 to 1; null if it is unknown. */
export function fraction(state: State, done: number, ready: number | null, needed: number | null): number | null {
  if (state === "FINISHED") return 1;
  if (state === "QUEUED" || state === "PREFLIGHT" || state === "SUBMITTED" || state === "WAITING") {
    return needed ? Math.min((ready ?? 0) / needed, 1) : null;
  }
  return state === "RUNNING" && !done ? null : done;
}

/** "trained 1:07, 2:41 with waiting", or "took 3:05" where it hardly waited. Times in seconds. */
function took(created: number, started: number | null, ended: number): string {
  if (started === null || started - created < WORTH_TELLING * (ended - created))
    return `took ${duration(ended - created)}`;
  return `trained ${duration(ended - started)}, ${duration(ended - created)} with waiting`;
}

/** "2:13 elapsed · about 1:40 left", "took 3:05", "waiting for 0:12". */
export function times(model: RunModel): string {
  const { state, progress } = model;
  if (!state || state.created === null) return "";
  if (state.ended !== null) return took(state.created, state.started, state.ended);
  if (isSilent(model)) return `${duration(model.lastSeen - state.created)} elapsed when last seen`;
  const elapsed = duration(model.now() - state.created);
  if (state.started === null) return `waiting for ${elapsed}`;
  const { end = null, fraction: done = 0 } = progress ?? {};
  if (end === null || done >= 1 || state.state !== "RUNNING") return `${elapsed} elapsed`;
  const left = duration(end - model.now());
  if (left !== "0:00") return `${elapsed} elapsed · about ${left} left`;
  // The estimated time is over: either the run is about to end, or there were no events for a long time.
  return done > NEARLY ? `${elapsed} elapsed · nearly done` : `${elapsed} elapsed`;
}
