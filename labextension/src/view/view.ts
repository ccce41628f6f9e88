/** The live view of one run. It knows neither notebook nor widget: a host hands it deltas and listens for Stop. */

import { Charts } from "./charts";
import { attribute, h, show, text } from "./dom";
import { Header } from "./header";
import { HeatMap } from "./heatmap";
import { keepKeys } from "./keys";
import { Logs } from "./logs";
import { type Delta, RunModel } from "./model";
import { Notice } from "./notice";
import { isSilent, status } from "./status";
import { behind, outliers } from "./stragglers";
import { Table } from "./table";
import { isDark, onThemeChange, type Palette, palette } from "./theme";

/** Above so many ranks a heat map and the outliers replace the table of all. */
const TABLE_ROWS = 16;

const CLOCK_MS = 1000;

export interface RunViewOptions {
  /** The reader clicked Stop. */
  onStop(): void;
  /** What is known already, if other views show the same run. */
  model?: RunModel;
}

export class RunView {
  readonly model: RunModel;
  private readonly root: HTMLElement;
  private readonly header: Header;
  private readonly notice = new Notice();
  private readonly charts: Charts;
  private readonly empty = h("p", { class: "ddl-empty ddl-dim" });
  private readonly heat: HeatMap;
  private readonly table = new Table();
  private readonly logs: Logs;
  private readonly spoken = h("span", { class: "ddl-spoken", role: "status" });
  private readonly stopListening: () => void;
  private readonly clock: ReturnType<typeof setInterval>;
  private colours: Palette | null = null;
  private chosen: number | null = null;
  private past: RunModel | null = null;
  private frame = 0;

  constructor(element: HTMLElement, options: RunViewOptions) {
    this.model = options.model ?? new RunModel();
    this.header = new Header(options.onStop);
    this.charts = new Charts(() => this.palette());
    this.logs = new Logs((rank) => this.choose(rank));
    this.heat = new HeatMap((rank) => this.logs.choose(this.chosen === rank ? null : rank));
    const parts = [this.header, this.notice, this.charts].map((part) => part.element);
    const rest = [this.heat, this.table, this.logs].map((part) => part.element);
    this.root = h("section", { class: "ddl-run" }, ...parts, this.empty, ...rest, this.spoken);
    keepKeys(this.root);
    // At hand in the browser's console, and for tests of what has arrived.
    Object.assign(this.root, { model: this.model });
    element.append(this.root);
    this.stopListening = onThemeChange(() => this.recolour());
    this.clock = setInterval(() => this.tick(), CLOCK_MS);
    this.recolour();
    this.draw();
  }

  /** Takes a delta and draws. False: one before it is missing, and everything must be asked for. */
  apply(delta: Delta): boolean {
    const applied = this.model.apply(delta);
    if (applied) this.draw();
    return applied;
  }

  /** Draws in the next frame what the model knows; a hidden page draws nothing. */
  draw(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  /** Draws another model, of the same run at another time, until it gets null. */
  drawInstead(past: RunModel | null): void {
    this.past = past;
    this.draw();
  }

  /** Ends the view; its element is empty afterwards. */
  dispose(): void {
    cancelAnimationFrame(this.frame);
    clearInterval(this.clock);
    this.stopListening();
    this.charts.destroy();
    this.root.remove();
  }

  private drawNow(): void {
    this.frame = 0;
    const model = this.drawn;
    const known = model.run !== null && model.state !== null;
    for (const part of [this.header, this.logs]) show(part.element, known);
    if (!known) {
      text(this.empty, "waiting for the kernel …");
      return;
    }
    attribute(this.root, "aria-label", `run ${model.run?.name}`);
    attribute(this.root, "data-state", model.state?.state);
    attribute(this.root, "data-run", model.run?.id);
    text(this.spoken, `${model.run?.name}: ${this.model.state?.state}`);
    this.header.draw(model);
    this.notice.draw(model);
    this.charts.draw(model);
    show(this.empty, this.charts.element.hidden && this.notice.element.hidden);
    text(this.empty, model.over ? "this run reported no steps" : "the charts begin with the first steps");
    this.drawWorkers();
    this.logs.draw(model);
    this.tick();
  }

  private drawWorkers(): void {
    const model = this.drawn;
    const workers = model.ranks();
    const ratios = behind(workers, model.run?.strategy === "ps");
    const many = Math.max(workers.length, model.run?.workers ?? 0) > TABLE_ROWS;
    this.heat.draw(model, many ? workers : [], ratios, this.chosen);
    const failed = model.state?.failure?.rank;
    const named = [this.chosen, failed].filter((rank): rank is number => typeof rank === "number");
    this.table.draw(model, many ? outliers(workers, ratios, named) : workers, ratios);
  }

  private tick(): void {
    const model = this.drawn;
    if (!model.run) return;
    this.header.tick(model);
    this.logs.drawStatus(status(model), isSilent(model));
  }

  private get drawn(): RunModel {
    return this.past ?? this.model;
  }

  private choose(rank: number | null): void {
    this.chosen = rank;
    this.draw();
  }

  private palette(): Palette {
    this.colours ??= palette(this.root);
    return this.colours;
  }

  private recolour(): void {
    attribute(this.root, "data-dark", String(isDark()));
    this.colours = null;
    this.charts.recolour();
  }
}
