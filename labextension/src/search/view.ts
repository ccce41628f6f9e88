/** The live view of a search, independent of notebook and widget: its host applies messages and handles the clicks. */

import type { TrialView } from "../generated";
import { h, setNote, setText, setVisible } from "../view/dom";
import { duration, number } from "../view/format";
import { Header } from "../view/header";
import { LiveView } from "../view/liveview";
import { Curves } from "./curves";
import { type SearchModel, totals } from "./model";
import { Parallel } from "./parallel";
import { isChosen } from "./scales";
import type { Emphasis } from "./svg";
import { TrialTable } from "./table";

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

export class SearchView extends LiveView {
  private readonly header = new Header("search", "trials that have ended");
  private readonly message = h("p", { class: "ddl-message" });
  private readonly empty = h("p", { class: "ddl-empty ddl-dim" }, "");
  private readonly foot = h("p", { class: "ddl-foot ddl-dim" });
  private readonly announcement = h("span", { class: "ddl-visually-hidden", role: "status" });
  private readonly curves: Curves;
  private readonly parallel: Parallel;
  private readonly table: TrialTable;
  private readonly parts: HTMLElement[];
  /** Stop was clicked, and not cancelled. */
  private stopClicked = false;
  /** The trial under the pointer, and the one that was clicked. */
  private pointed: number | null = null;
  private picked: number | null = null;

  constructor(
    host: HTMLElement,
    private readonly options: SearchViewOptions,
  ) {
    super("ddl-run ddl-search");
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
    this.header.stop.addEventListener("click", () => void this.askToStop());
    const head = this.header.element;
    const charts = h("div", { class: "ddl-charts" }, this.curves.element, this.parallel.element);
    this.parts = [head, charts, this.table.element, this.foot];
    this.root.append(head, this.message, this.empty, charts, this.table.element, this.foot, this.announcement);
    this.start(host);
  }

  protected override resized(): void {
    super.resized();
    this.draw();
  }

  protected override drawNow(): void {
    const { model } = this.options;
    const { info, state } = model;
    for (const part of this.parts) setVisible(part, info !== null);
    setVisible(this.empty, info === null);
    setNote(this.message, state?.message ?? "");
    if (!info || !state) return;
    this.identify(`search ${info.name}`, state.state, info.id);
    const ended = model.ended();
    this.header.drawTitle(state.state, info.name, [`${ended} of ${info.planned} trials`, state.about]);
    this.header.drawBar(ended, info.planned);
    this.drawStop();
    this.message.dataset.state = state.state === "FAILED" ? "LOST" : state.state;
    const best = model.best;
    const found = best ? `, best ${info.metric} ${number(best.value)}` : "";
    setText(this.announcement, `${info.name}: ${state.state}${found}`);
    setText(this.foot, totals([...model.trials.values()]));
    this.drawTrials();
    this.tick();
  }

  private async askToStop(): Promise<void> {
    this.drawStop(true);
    if ((await this.options.onStop()) !== false) return;
    this.drawStop(false);
    this.header.stop.focus();
  }

  /** @param clicked Stop was clicked, and not cancelled */
  private drawStop(clicked = this.stopClicked): void {
    const { info, state, over } = this.options.model;
    this.stopClicked = clicked;
    this.header.drawStop(over, info?.waiting ?? false, clicked || state?.state === "STOPPING");
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

  protected override tick(): void {
    const { state, over } = this.options.model;
    if (!state) return;
    const now = this.options.model.now();
    const seconds = over ? state.seconds : state.seconds + Math.max(0, now - state.at);
    const left = state.left === null ? null : state.left - (now - state.at);
    const about = left === null || over ? "" : left > 0 ? ` · about ${duration(left)} left` : " · nearly done";
    setText(this.header.times, over ? `took ${duration(seconds)}` : `${duration(seconds)} elapsed${about}`);
  }
}
