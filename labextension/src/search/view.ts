/** The live view of a search, independent of notebook and widget: its host applies messages and handles the clicks. */

import type { TrialView } from "../generated";
import { h, setAttribute, setText, setVisible } from "../view/dom";
import { duration, number } from "../view/format";
import { keepKeys } from "../view/keys";
import { isDark, onThemeChange } from "../view/theme";
import { Curves } from "./curves";
import { type SearchModel, totals } from "./model";
import { Parallel } from "./parallel";
import { isChosen } from "./scales";
import type { Emphasis } from "./svg";
import { TrialTable } from "./table";

const CLOCK_MS = 1000;

export interface SearchViewOptions {
  model: SearchModel;
  /** What stands there before the first message. */
  waiting?: string;
  /** The reader wants the search to end. May answer false, now or later: it was not asked to. */
  onStop(): unknown;
  /** The same for a trial. */
  onStopTrial(trial: number): unknown;
  /** Opens the run of a trial. Without it there is no button for that. */
  onOpenTrial?(trial: number): void;
  /** Compares the runs of two or more trials. Without it trials cannot be chosen for that. */
  onCompare?(trials: number[]): void;
}

export class SearchView {
  private readonly root: HTMLElement;
  private readonly chip = h("span", { class: "ddl-chip" });
  private readonly name = h("strong", { class: "ddl-name" });
  private readonly facts = h("span", { class: "ddl-dim" });
  private readonly times = h("span", { class: "ddl-dim ddl-times" });
  private readonly stop = h("button", { class: "ddl-stop", type: "button" }, "Stop");
  private readonly hint = h(
    "span",
    { class: "ddl-dim ddl-hint" },
    "To stop the search, use the notebook's stop button ■",
  );
  private readonly fill = h("i");
  private readonly bar = h(
    "div",
    { class: "ddl-bar", role: "progressbar", "aria-label": "trials that have ended", "aria-valuemin": 0 },
    this.fill,
  );
  private readonly message = h("p", { class: "ddl-message" });
  private readonly empty = h("p", { class: "ddl-empty ddl-dim" }, "");
  private readonly foot = h("p", { class: "ddl-foot ddl-dim" });
  private readonly announcement = h("span", { class: "ddl-visually-hidden", role: "status" });
  private readonly curves: Curves;
  private readonly parallel: Parallel;
  private readonly table: TrialTable;
  private readonly parts: HTMLElement[];
  private readonly observer: ResizeObserver;
  private readonly removeThemeListener: () => void;
  private readonly clock: ReturnType<typeof setInterval>;
  /** The trial under the pointer, and the one that was clicked. */
  private pointed: number | null = null;
  private picked: number | null = null;
  private frame = 0;

  constructor(
    element: HTMLElement,
    private readonly options: SearchViewOptions,
  ) {
    this.curves = new Curves((trial, keep) => this.pick(trial, keep));
    this.parallel = new Parallel(() => this.draw());
    const { onOpenTrial, onCompare } = options;
    this.table = new TrialTable({
      onPick: (trial) => this.pick(trial, true),
      onStop: options.onStopTrial,
      onChange: () => this.draw(),
      ...(onOpenTrial && { onOpen: onOpenTrial }),
      ...(onCompare && { onCompare }),
    });
    setText(this.empty, options.waiting ?? "Waiting for the kernel …");
    this.stop.addEventListener("click", () => void this.askToStop());
    const title = h("div", { class: "ddl-title" }, this.chip, this.name, this.facts);
    const right = h("div", { class: "ddl-right" }, this.times, this.hint, this.stop);
    const head = h("header", {}, h("div", { class: "ddl-head" }, title, right), this.bar);
    const charts = h("div", { class: "ddl-charts" }, this.curves.element, this.parallel.element);
    this.parts = [head, charts, this.table.element, this.foot];
    this.root = h("section", { class: "ddl-run ddl-search" }, head, this.message, this.empty, charts);
    this.root.append(this.table.element, this.foot, this.announcement);
    keepKeys(this.root);
    element.append(this.root);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(charts);
    this.removeThemeListener = onThemeChange(() => this.recolour());
    this.clock = setInterval(() => this.tick(), CLOCK_MS);
    this.recolour();
    this.draw();
  }

  /** Draws the model in the next animation frame; a hidden page has none. */
  draw(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  /** Removes the view from the document. */
  dispose(): void {
    cancelAnimationFrame(this.frame);
    clearInterval(this.clock);
    this.observer.disconnect();
    this.removeThemeListener();
    this.root.remove();
  }

  private drawNow(): void {
    this.frame = 0;
    const { model } = this.options;
    const { info, state } = model;
    for (const part of this.parts) setVisible(part, info !== null);
    setVisible(this.empty, info === null);
    setVisible(this.message, Boolean(state?.message));
    if (!info || !state) return;
    setAttribute(this.root, "aria-label", `search ${info.name}`);
    setAttribute(this.root, "data-run", info.id);
    setAttribute(this.root, "data-state", state.state);
    setText(this.chip, state.state);
    this.chip.dataset.state = state.state;
    setText(this.name, info.name);
    const ended = model.ended();
    setText(this.facts, [`${ended} of ${info.planned} trials`, state.about].filter(Boolean).join(" · "));
    setText(this.message, state.message);
    this.message.dataset.state = state.state === "FAILED" ? "LOST" : state.state;
    this.fill.style.width = `${(100 * ended) / Math.max(1, info.planned)}%`;
    this.bar.dataset.state = state.state;
    setAttribute(this.bar, "aria-valuenow", ended);
    setAttribute(this.bar, "aria-valuemax", info.planned);
    const stopping = state.state === "STOPPING";
    setVisible(this.stop, !model.over && !info.waiting);
    setVisible(this.hint, !model.over && info.waiting);
    if (stopping) {
      setText(this.stop, "Stopping…");
      setAttribute(this.stop, "disabled", true);
    }
    const best = model.best;
    const found = best ? `, best ${info.metric} ${number(best.value)}` : "";
    setText(this.announcement, `${info.name}: ${state.state}${found}`);
    setText(this.foot, totals([...model.trials.values()]));
    this.drawTrials();
    this.tick();
  }

  private async askToStop(): Promise<void> {
    setAttribute(this.stop, "disabled", true);
    setText(this.stop, "Stopping…");
    if ((await this.options.onStop()) !== false) return;
    setAttribute(this.stop, "disabled", false);
    setText(this.stop, "Stop");
    this.stop.focus();
  }

  private drawTrials(): void {
    const { model } = this.options;
    this.parallel.update(model);
    const { scales, brushes } = this.parallel;
    const emphasis: Emphasis = {
      isChosen: (trial: TrialView) => isChosen(trial, scales, brushes),
      best: new Set(model.state?.front),
      picked: this.pointed ?? this.picked,
    };
    this.curves.draw(model, emphasis);
    this.parallel.draw(model, emphasis);
    this.table.draw(model, emphasis);
  }

  private pick(trial: number | null, keep: boolean): void {
    const before = [this.pointed, this.picked];
    this.pointed = keep ? null : trial;
    if (keep) this.picked = trial === this.picked ? null : trial;
    if (this.pointed !== before[0] || this.picked !== before[1]) this.draw();
  }

  /** Redraws what depends on the clock. */
  private tick(): void {
    const { state, over } = this.options.model;
    if (!state) return;
    const now = this.options.model.now();
    const seconds = over ? state.seconds : state.seconds + Math.max(0, now - state.at);
    const left = state.left === null ? null : state.left - (now - state.at);
    const about = left === null || over ? "" : left > 0 ? ` · about ${duration(left)} left` : " · nearly done";
    setText(this.times, over ? `took ${duration(seconds)}` : `${duration(seconds)} elapsed${about}`);
  }

  private recolour(): void {
    setAttribute(this.root, "data-dark", String(isDark()));
  }
}
