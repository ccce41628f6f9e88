/** The tab "Charts": the live view of the notebook; a run that has ended can be replayed in it. */

import { messageOf } from "../polling";
import type { Translation } from "../translation";
import { h, setNote, setVisible } from "../view/dom";
import type { RunModel } from "../view/model";
import { RunView } from "../view/view";
import { Player } from "./player";
import type { Recording } from "./recording";
import { modelAt, timeSpan } from "./replay";
import type { TabContent } from "./tabs";

export class ChartsTab implements TabContent {
  readonly element: HTMLElement;
  private readonly aborter = new AbortController();
  private readonly player: Player;
  private readonly error = h("p", { class: "ddl-banner", role: "status", hidden: true });
  private readonly view: RunView;
  private visible = false;
  /** The time that is shown, in seconds since the run was created; null: the current state. */
  private time: number | null = null;
  /** Of the past models: negative, unlike that of the current one, and another one whenever log lines disappear. */
  private generation = -2;

  constructor(
    private readonly model: RunModel,
    private readonly recording: Recording,
    private readonly trans: Translation,
    onStop: () => void,
  ) {
    const host = h("div");
    this.player = new Player(trans, (time) => this.seek(time));
    this.view = new RunView(host, { model, onStop, waiting: trans.__("Loading the run …") });
    // Between the title of the page and those of the charts, for readers who go from heading to heading.
    const heading = h("h2", { class: "ddl-visually-hidden" }, trans.__("Charts"));
    this.element = h("div", {}, heading, this.player.element, this.error, host);
    setVisible(this.player.element, false);
  }

  show(): void {
    this.visible = true;
    this.draw();
  }

  hide(): void {
    this.visible = false;
    this.player.pause();
  }

  draw(): void {
    if (!this.visible) return;
    this.view.draw();
    const span = timeSpan(this.model);
    setVisible(this.player.element, span !== null);
    if (span) this.player.setSpan(span);
  }

  dispose(): void {
    this.aborter.abort();
    this.player.pause();
    this.view.dispose();
  }

  private seek(time: number | null): void {
    const first = this.time === null;
    if (time === null || first || time < (this.time ?? 0)) this.generation -= 1;
    this.time = time;
    this.drawPast();
    if (time !== null && first) void this.load();
  }

  private drawPast(): void {
    const { frames, printed } = this.recording;
    const past = this.time === null ? null : modelAt(this.model, this.time, frames, printed);
    if (past) past.generation = this.generation;
    this.view.drawPast(past);
  }

  /** Loads the workers' table and the log. The charts can be replayed without them. */
  private async load(): Promise<void> {
    const { signal } = this.aborter;
    try {
      await this.recording.load(signal);
      setNote(this.error, "");
    } catch (error) {
      if (signal.aborted) return;
      setNote(this.error, this.trans.__("Only the charts can be replayed: %1", messageOf(error)));
    }
    this.generation -= 1;
    this.drawPast();
  }
}
