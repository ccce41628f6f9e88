/** The tab of the charts: the live view that the notebook draws too, and a run that has ended once more, as it went on. */

import type { Translation } from "../translation";
import { epochAt } from "../view/axes";
import { Charts } from "../view/charts";
import { attribute, h, show, text } from "../view/dom";
import { number } from "../view/format";
import type { RunModel } from "../view/model";
import { isDark, onThemeChange, type Palette, palette } from "../view/theme";
import { RunView } from "../view/view";
import { Player } from "./player";
import { modelAt, span, stepAt } from "./replay";
import type { Part } from "./tabs";

export class ChartsPart implements Part {
  readonly element: HTMLElement;
  private readonly player: Player;
  private readonly whole = h("div");
  private readonly view: RunView;
  private readonly past: HTMLElement;
  private readonly place = h("p", { class: "ddl-message" });
  private readonly charts = new Charts(() => this.palette());
  private readonly stopListening: () => void;
  private colours: Palette | null = null;
  private shown = false;

  constructor(
    private readonly model: RunModel,
    private readonly trans: Translation,
    onStop: () => void,
  ) {
    this.player = new Player(trans, (seconds) => this.replay(seconds));
    this.view = new RunView(this.whole, { model, onStop });
    this.past = h("section", { class: "ddl-run", "aria-label": trans.__("Replay") }, this.place, this.charts.element);
    this.element = h("div", {}, this.player.element, this.whole, this.past);
    this.stopListening = onThemeChange(() => this.recolour());
    this.recolour();
    show(this.player.element, false);
    show(this.past, false);
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
    this.player.pause();
    this.stopListening();
    this.view.dispose();
    this.charts.destroy();
  }

  /** Shows the run as it was at a moment; null: as it is. */
  private replay(seconds: number | null): void {
    show(this.whole, seconds === null);
    show(this.past, seconds !== null);
    if (seconds === null) return;
    const { model, trans } = this;
    const past = modelAt(model, seconds);
    const step = stepAt(model, seconds);
    const epoch = epochAt(model.line("epoch"), model.progress?.steps ?? null, step);
    const at = trans.__("step %1", number(Math.floor(step)));
    text(this.place, epoch === null ? at : trans.__("epoch %1 · %2", epoch.toFixed(1), at));
    this.charts.draw(past);
  }

  private palette(): Palette {
    this.colours ??= palette(this.past);
    return this.colours;
  }

  private recolour(): void {
    attribute(this.past, "data-dark", String(isDark()));
    this.colours = null;
    this.charts.recolour();
  }
}
