/** The head of a run: its state, name and times, Stop, and the bar of its progress. */

import { attribute, h, show, text } from "./dom";
import { duration, plural } from "./format";
import type { StateName } from "./messages";
import type { RunModel } from "./model";

/** A stop that has not begun after so long may be asked for again. */
const STOP_AGAIN_MS = 10_000;

/** The share that must be done for a run to be nearly done. */
const NEARLY = 0.9;

const STRATEGIES: Record<string, string> = { allreduce: "all-reduce", ps: "parameter server", single: "one process" };

export class Header {
  readonly element: HTMLElement;
  private readonly chip = h("span", { class: "ddl-chip" });
  private readonly name = h("strong", { class: "ddl-name" });
  private readonly facts = h("span", { class: "ddl-dim" });
  private readonly times = h("span", { class: "ddl-dim ddl-times" });
  private readonly stop = h("button", { class: "ddl-stop", type: "button" }, "Stop");
  private readonly hint = h("span", { class: "ddl-dim ddl-hint" }, "to stop, use the stop button of the notebook ■");
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
  private asked = 0;

  constructor(onStop: () => void) {
    this.stop.addEventListener("click", () => {
      this.asked = Date.now();
      onStop();
    });
    const title = h("div", { class: "ddl-title" }, this.chip, this.name, this.facts);
    const right = h("div", { class: "ddl-right" }, this.times, this.hint, this.stop);
    this.element = h("header", {}, h("div", { class: "ddl-head" }, title, right), this.bar);
  }

  draw(model: RunModel): void {
    const { run, state, progress } = model;
    if (!run || !state) return;
    text(this.chip, state.state);
    this.chip.dataset.state = state.state;
    text(this.name, run.name);
    const strategy = STRATEGIES[run.strategy] ?? run.strategy;
    const workers = run.strategy === "single" ? "" : plural(run.workers, "worker");
    text(this.facts, [strategy, workers, run.cluster].filter(Boolean).join(" · "));
    this.drawStop(model, state.state);
    const share = fraction(state.state, progress?.fraction ?? 0, state.ready, state.needed);
    // A bar of unknown length sweeps to and fro.
    this.fill.style.width = share === null ? "22%" : `${100 * share}%`;
    attribute(this.bar, "aria-valuenow", share === null ? undefined : Math.round(100 * share));
    this.bar.dataset.state = state.state;
    attribute(this.bar, "data-unknown", share === null);
    this.tick(model);
  }

  /** What changes with the clock alone. */
  tick(model: RunModel): void {
    text(this.times, times(model));
    if (this.asked && Date.now() - this.asked > STOP_AGAIN_MS) {
      this.asked = 0;
      this.drawStop(model, model.state?.state ?? "RUNNING");
    }
  }

  private drawStop(model: RunModel, state: StateName): void {
    const waiting = model.run?.waiting ?? false;
    show(this.stop, !model.over && !waiting);
    show(this.hint, !model.over && waiting);
    const stopping = state === "STOPPING" || this.asked > 0;
    text(this.stop, stopping ? "Stopping…" : "Stop");
    attribute(this.stop, "disabled", stopping);
  }
}

/** The filled share of the bar; null while it cannot be known. */
export function fraction(state: StateName, done: number, ready: number | null, needed: number | null): number | null {
  if (state === "FINISHED") return 1;
  if (state === "WAITING" && needed) return Math.min((ready ?? 0) / needed, 1);
  if (state === "QUEUED" || state === "PREFLIGHT" || state === "SUBMITTED" || state === "WAITING") return null;
  return state === "RUNNING" && !done ? null : done;
}

/** "2:13 elapsed · about 1:40 left", "took 3:05", "waiting for 0:12". */
export function times(model: RunModel): string {
  const { state, progress } = model;
  if (!state || state.created === null) return "";
  if (state.ended !== null) return `took ${duration(state.ended - state.created)}`;
  const elapsed = duration(model.now() - state.created);
  if (state.started === null) return `waiting for ${elapsed}`;
  const { remaining = null, heard = null, fraction: done = 0 } = progress ?? {};
  if (remaining === null || heard === null || done >= 1 || state.state !== "RUNNING") return `${elapsed} elapsed`;
  const left = duration(remaining - (model.now() - heard));
  if (left !== "0:00") return `${elapsed} elapsed · about ${left} left`;
  // The time is over that the newest steps promised: that is its end, or there was no word of it for long.
  return done > NEARLY ? `${elapsed} elapsed · nearly done` : `${elapsed} elapsed`;
}
