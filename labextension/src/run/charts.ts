/** The tab of the charts: the live view that the notebook draws too, and a run that has ended once more, as it went on. */

import type { Translation } from "../translation";
import { h, show, text } from "../view/dom";
import type { RunModel } from "../view/model";
import { RunView } from "../view/view";
import { Player } from "./player";
import type { Recording } from "./recording";
import { modelAt, span } from "./replay";
import type { Part } from "./tabs";

export class ChartsPart implements Part {
  readonly element: HTMLElement;
  private readonly over = new AbortController();
  private readonly player: Player;
  private readonly trouble = h("p", { class: "ddl-banner", role: "status", hidden: true });
  private readonly view: RunView;
  private shown = false;
  /** The moment that is shown, in seconds since the run was created; null: as it is. */
  private moment: number | null = null;
  /** Below those of the model itself, and another one whenever lines are taken back. */
  private generation = -2;

  constructor(
    private readonly model: RunModel,
    private readonly recording: Recording,
    private readonly trans: Translation,
    onStop: () => void,
  ) {
    const whole = h("div");
    this.player = new Player(trans, (seconds) => this.replay(seconds));
    this.view = new RunView(whole, { model, onStop });
    this.element = h("div", {}, this.player.element, this.trouble, whole);
    show(this.player.element, false);
  }

  show(): void {
    this.shown = true;
    this.draw();
  }

  hide(): void {
    this.shown = false;
    this.player.pause();
  }

  /** Draws what the model knows, if somebody sees it. */
  draw(): void {
    if (!this.shown) return;
    this.view.draw();
    const known = span(this.model);
    show(this.player.element, known !== null);
    if (known) this.player.set(known);
  }

  dispose(): void {
    this.over.abort();
    this.player.pause();
    this.view.dispose();
  }

  /** Shows the run as it was at a moment; null: as it is. */
  private replay(seconds: number | null): void {
    const first = this.moment === null;
    if (seconds === null || first || seconds < (this.moment ?? 0)) this.generation -= 1;
    this.moment = seconds;
    this.drawMoment();
    if (seconds !== null && first) void this.load();
  }

  private drawMoment(): void {
    const { frames, printed } = this.recording;
    const past = this.moment === null ? null : modelAt(this.model, this.moment, frames, printed);
    if (past) past.generation = this.generation;
    this.view.drawInstead(past);
  }

  /** Brings what the charts' lines do not say; until it is there, and without it, they move alone. */
  private async load(): Promise<void> {
    const { signal } = this.over;
    try {
      await this.recording.load(signal);
      show(this.trouble, false);
    } catch (error) {
      if (signal.aborted) return;
      const message = error instanceof Error ? error.message : String(error);
      text(this.trouble, this.trans.__("The charts alone can be played: %1", message));
      show(this.trouble, true);
    }
    this.generation -= 1;
    this.drawMoment();
  }
}
