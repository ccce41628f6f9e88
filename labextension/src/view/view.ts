/** The live view of one run, independent of notebook and widget: its host applies deltas and handles Stop. */

import { Charts } from "./charts";
import { h, setText, setVisible } from "./dom";
import { RunHeader } from "./header";
import { HeatMap } from "./heatmap";
import { LiveView } from "./liveview";
import { Logs } from "./logs";
import { hasLeft, type RunModel } from "./model";
import { Monitor } from "./monitor";
import { Notice } from "./notice";
import { Phases, stateWord } from "./phases";
import { isSilent, status } from "./status";
import { outliers, slowness } from "./stragglers";
import { Table } from "./table";

/** Above this number of ranks, a heat map and the outliers replace the table of all ranks. */
const MAX_TABLE_ROWS = 16;

function emptyText(isMonitor: boolean, over: boolean): string {
  if (isMonitor) return over ? "No request was logged." : "Waiting for the first requests of the log.";
  return over ? "This run reported no steps." : "The charts appear with the first steps.";
}

export interface RunViewOptions {
  /** The reader clicked Stop. */
  onStop(): void;
  model: RunModel;
  /** What stands there before the first message. */
  waiting?: string;
}

export class RunView extends LiveView {
  private readonly model: RunModel;
  private readonly header: RunHeader;
  private readonly phases = new Phases();
  private readonly notice = new Notice();
  private readonly charts: Charts;
  private readonly monitor = new Monitor();
  private readonly empty = h("p", { class: "ddl-empty ddl-dim" });
  private readonly heat: HeatMap;
  private readonly table = new Table();
  private readonly logs: Logs;
  /** Announces changes of the state to screen readers. */
  private readonly announcement = h("span", { class: "ddl-visually-hidden", role: "status" });
  private readonly waiting: string;
  private selected: number | null = null;
  private past: RunModel | null = null;

  constructor(host: HTMLElement, { model, onStop, waiting = "Waiting for the kernel …" }: RunViewOptions) {
    super("ddl-run");
    this.waiting = waiting;
    this.model = model;
    this.header = new RunHeader(onStop);
    this.charts = new Charts(() => this.palette());
    this.logs = new Logs((rank) => this.select(rank));
    this.heat = new HeatMap((rank) => this.logs.selectRank(this.selected === rank ? null : rank));
    const top = [this.header, this.phases, this.notice, this.monitor, this.charts].map((part) => part.element);
    const bottom = [this.heat, this.table, this.logs].map((part) => part.element);
    this.root.append(...top, this.empty, ...bottom, this.announcement);
    for (const part of [...top, ...bottom]) setVisible(part, false);
    // For the browser's console, and for tests of what has arrived.
    Object.assign(this.root, { model });
    this.start(host);
  }

  /** Draws a model of the same run at an earlier time; null returns to the current one. */
  drawPast(past: RunModel | null): void {
    this.past = past;
    this.draw();
  }

  override dispose(): void {
    super.dispose();
    this.charts.destroy();
  }

  protected override drawNow(): void {
    const model = this.drawn;
    const { run, state } = model;
    for (const part of [this.header, this.logs]) setVisible(part.element, run !== null && state !== null);
    if (!run || !state) {
      setText(this.empty, this.waiting);
      return;
    }
    this.identify(`run ${run.name}`, state.state, run.id);
    setText(this.announcement, `${run.name}: ${stateWord(this.model.state?.state ?? "")}`);
    this.header.draw(model);
    this.notice.draw(model);
    this.charts.draw(model);
    this.monitor.draw(model.monitor);
    this.phases.draw(model);
    const isEmpty = [this.charts, this.notice, this.monitor].every(({ element }) => element.hidden);
    setVisible(this.empty, isEmpty);
    setText(this.empty, emptyText(run.strategy === "monitor", model.over));
    this.drawWorkers();
    this.logs.draw(model);
    this.tick();
  }

  private drawWorkers(): void {
    const model = this.drawn;
    const workers = model.ranks();
    const ratios = slowness(
      workers.filter((worker) => !hasLeft(worker)),
      model.run?.strategy === "ps",
    );
    const many = Math.max(workers.length, model.run?.workers ?? 0) > MAX_TABLE_ROWS;
    this.heat.draw(model, many ? workers : [], ratios, this.selected);
    const failed = model.state?.failure?.rank;
    const named = [this.selected, failed].filter((rank): rank is number => typeof rank === "number");
    this.table.draw(model, many ? outliers(workers, ratios, named) : workers, ratios);
  }

  protected override tick(): void {
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

  protected override recolour(): void {
    super.recolour();
    this.charts.recolour();
  }

  protected override shown(): void {
    super.shown();
    this.logs.scroll();
  }
}
