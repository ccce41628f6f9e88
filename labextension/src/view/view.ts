/** The live view of one run, independent of notebook and widget: its host applies deltas and handles Stop. */

import { Charts } from "./charts";
import { h, setAttribute, setText, setVisible } from "./dom";
import { Header } from "./header";
import { HeatMap } from "./heatmap";
import { keepKeys } from "./keys";
import { Logs } from "./logs";
import { type Delta, RunModel } from "./model";
import { Monitor } from "./monitor";
import { Notice } from "./notice";
import { isSilent, status } from "./status";
import { outliers, slowness } from "./stragglers";
import { Table } from "./table";
import { isDark, onThemeChange, type Palette, palette } from "./theme";

/** Above this number of ranks, a heat map and the outliers replace the table of all ranks. */
const MAX_TABLE_ROWS = 16;

const CLOCK_MS = 1000;

function emptyText(isMonitor: boolean, over: boolean): string {
  if (isMonitor) return over ? "No request was logged." : "Waiting for the first requests of the log.";
  return over ? "This run reported no steps." : "The charts appear with the first steps.";
}

export interface RunViewOptions {
  /** The reader clicked Stop. */
  onStop(): void;
  /** The model, if several views share one. */
  model?: RunModel;
}

export class RunView {
  readonly model: RunModel;
  private readonly root: HTMLElement;
  private readonly header: Header;
  private readonly notice = new Notice();
  private readonly charts: Charts;
  private readonly monitor = new Monitor();
  private readonly empty = h("p", { class: "ddl-empty ddl-dim" });
  private readonly heat: HeatMap;
  private readonly table = new Table();
  private readonly logs: Logs;
  /** Announces changes of the state to screen readers. */
  private readonly announcement = h("span", { class: "ddl-visually-hidden", role: "status" });
  private readonly removeThemeListener: () => void;
  private readonly clock: ReturnType<typeof setInterval>;
  private colours: Palette | null = null;
  private selected: number | null = null;
  private past: RunModel | null = null;
  private frame = 0;

  constructor(element: HTMLElement, options: RunViewOptions) {
    this.model = options.model ?? new RunModel();
    this.header = new Header(options.onStop);
    this.charts = new Charts(() => this.palette());
    this.logs = new Logs((rank) => this.select(rank));
    this.heat = new HeatMap((rank) => this.logs.selectRank(this.selected === rank ? null : rank));
    const top = [this.header, this.notice, this.monitor, this.charts].map((part) => part.element);
    const bottom = [this.heat, this.table, this.logs].map((part) => part.element);
    this.root = h("section", { class: "ddl-run" }, ...top, this.empty, ...bottom, this.announcement);
    keepKeys(this.root);
    // For the browser's console, and for tests of what has arrived.
    Object.assign(this.root, { model: this.model });
    element.append(this.root);
    this.removeThemeListener = onThemeChange(() => this.recolour());
    this.clock = setInterval(() => this.tick(), CLOCK_MS);
    this.recolour();
    this.draw();
  }

  /** Applies a delta and draws it. Returns false if a message before it is missing: then a full one is needed. */
  apply(delta: Delta): boolean {
    const applied = this.model.apply(delta);
    if (applied) this.draw();
    return applied;
  }

  /** Draws the model in the next animation frame; a hidden page has none. */
  draw(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  /** Draws a model of the same run at an earlier time; null returns to the current one. */
  drawPast(past: RunModel | null): void {
    this.past = past;
    this.draw();
  }

  /** Removes the view from the document. */
  dispose(): void {
    cancelAnimationFrame(this.frame);
    clearInterval(this.clock);
    this.removeThemeListener();
    this.charts.destroy();
    this.root.remove();
  }

  private drawNow(): void {
    this.frame = 0;
    const model = this.drawn;
    const { run, state } = model;
    for (const part of [this.header, this.logs]) setVisible(part.element, run !== null && state !== null);
    if (!run || !state) {
      setText(this.empty, "Waiting for the kernel …");
      return;
    }
    setAttribute(this.root, "aria-label", `run ${run.name}`);
    setAttribute(this.root, "data-state", state.state);
    setAttribute(this.root, "data-run", run.id);
    setText(this.announcement, `${run.name}: ${this.model.state?.state}`);
    this.header.draw(model);
    this.notice.draw(model);
    this.charts.draw(model);
    this.monitor.draw(model.monitor);
    const parts = [this.charts.element, this.notice.element, this.monitor.element];
    setVisible(
      this.empty,
      parts.every((part) => part.hidden),
    );
    setText(this.empty, emptyText(run.strategy === "monitor", model.over));
    this.drawWorkers();
    this.logs.draw(model);
    this.tick();
  }

  private drawWorkers(): void {
    const model = this.drawn;
    const workers = model.ranks();
    const ratios = slowness(workers, model.run?.strategy === "ps");
    const many = Math.max(workers.length, model.run?.workers ?? 0) > MAX_TABLE_ROWS;
    this.heat.draw(model, many ? workers : [], ratios, this.selected);
    const failed = model.state?.failure?.rank;
    const named = [this.selected, failed].filter((rank): rank is number => typeof rank === "number");
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

  private select(rank: number | null): void {
    this.selected = rank;
    this.draw();
  }

  private palette(): Palette {
    this.colours ??= palette(this.root);
    return this.colours;
  }

  private recolour(): void {
    setAttribute(this.root, "data-dark", String(isDark()));
    this.colours = null;
    this.charts.recolour();
  }
}
