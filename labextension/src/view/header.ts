/** The header of a run: state, name, times, the Stop button and the progress bar. */

import { STRATEGY_TITLES, type State } from "../generated";
import { h, setAttribute, setText, setVisible } from "./dom";
import { duration, plural } from "./format";
import type { RunModel } from "./model";

/** Stop can be clicked again if the run is not stopping after this time. */
const STOP_AGAIN_MS = 10_000;

/** From this share on, a run whose estimate was exceeded is "nearly done". */
const NEARLY = 0.9;

const STRATEGIES: Record<string, string> = STRATEGY_TITLES;

export class Header {
  readonly element: HTMLElement;
  private readonly chip = h("span", { class: "ddl-chip" });
  private readonly name = h("strong", { class: "ddl-name" });
  private readonly facts = h("span", { class: "ddl-dim" });
  private readonly times = h("span", { class: "ddl-dim ddl-times" });
  private readonly stop = h("button", { class: "ddl-stop", type: "button" }, "Stop");
  private readonly hint = h("span", { class: "ddl-dim ddl-hint" }, "To stop the run, use the notebook's stop button ■");
  private readonly fill = h("i");
  private readonly bar = h(
    "div",
    {
      class: "ddl-bar",
      role: "progressbar",
      "aria-label": "progress of the run",
      "aria-valuemin": 0,
      "aria-valuemax": 100,
    },
    this.fill,
  );
  /** When Stop was clicked, in milliseconds; 0 if it was not. */
  private stopClicked = 0;

  constructor(onStop: () => void) {
    this.stop.addEventListener("click", () => {
      this.stopClicked = Date.now();
      onStop();
    });
    const title = h("div", { class: "ddl-title" }, this.chip, this.name, this.facts);
    const right = h("div", { class: "ddl-right" }, this.times, this.hint, this.stop);
    this.element = h("header", {}, h("div", { class: "ddl-head" }, title, right), this.bar);
  }

  draw(model: RunModel): void {
    const { run, state, progress } = model;
    if (!run || !state) return;
    setText(this.chip, state.state);
    this.chip.dataset.state = state.state;
    setText(this.name, run.name);
    const strategy = STRATEGIES[run.strategy] ?? run.strategy;
    const workers = ["single", "monitor"].includes(run.strategy) ? "" : plural(run.workers, "worker");
    setText(this.facts, [strategy, workers, run.cluster].filter(Boolean).join(" · "));
    this.drawStop(model, state.state);
    const share = fraction(state.state, progress?.fraction ?? 0, state.ready, state.needed);
    // An indeterminate bar moves to and fro.
    this.fill.style.width = share === null ? "22%" : `${100 * share}%`;
    setAttribute(this.bar, "aria-valuenow", share === null ? undefined : Math.round(100 * share));
    this.bar.dataset.state = state.state;
    setAttribute(this.bar, "data-unknown", share === null);
    this.tick(model);
  }

  /** Redraws what depends on the clock. */
  tick(model: RunModel): void {
    setText(this.times, times(model));
    if (this.stopClicked && Date.now() - this.stopClicked > STOP_AGAIN_MS) {
      this.stopClicked = 0;
      this.drawStop(model, model.state?.state ?? "RUNNING");
    }
  }

  private drawStop(model: RunModel, state: State): void {
    const waiting = model.run?.waiting ?? false;
    setVisible(this.stop, !model.over && !waiting);
    setVisible(this.hint, !model.over && waiting);
    const stopping = state === "STOPPING" || this.stopClicked > 0;
    setText(this.stop, stopping ? "Stopping…" : "Stop");
    setAttribute(this.stop, "disabled", stopping);
  }
}

/** The filled share of the bar, 0 to 1; null if it is unknown. */
export function fraction(state: State, done: number, ready: number | null, needed: number | null): number | null {
  if (state === "FINISHED") return 1;
  if (state === "QUEUED" || state === "PREFLIGHT" || state === "SUBMITTED" || state === "WAITING") {
    return needed ? Math.min((ready ?? 0) / needed, 1) : null;
  }
  return state === "RUNNING" && !done ? null : done;
}

/** "2:13 elapsed · about 1:40 left", "took 3:05", "waiting for 0:12". */
export function times(model: RunModel): string {
  const { state, progress } = model;
  if (!state || state.created === null) return "";
  if (state.ended !== null) return `took ${duration(state.ended - state.created)}`;
  const elapsed = duration(model.now() - state.created);
  if (state.started === null) return `waiting for ${elapsed}`;
  const { remaining = null, last_seen = null, fraction: done = 0 } = progress ?? {};
  if (remaining === null || last_seen === null || done >= 1 || state.state !== "RUNNING") return `${elapsed} elapsed`;
  const left = duration(remaining - (model.now() - last_seen));
  if (left !== "0:00") return `${elapsed} elapsed · about ${left} left`;
  // The estimated time is over: either the run is about to end, or there were no events for a long time.
  return done > NEARLY ? `${elapsed} elapsed · nearly done` : `${elapsed} elapsed`;
}
