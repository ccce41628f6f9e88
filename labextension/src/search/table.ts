/** The trials as a table that sorts by each of its columns. */

import type { TrialView } from "../generated";
import { button, h, scrollBox, setAttribute, setChildren, setText, setVisible } from "../view/dom";
import { duration, number, UNKNOWN } from "../view/format";
import type { SearchModel } from "./model";
import { BEST_FIRST, type Order, ordered } from "./order";
import type { Emphasis } from "./svg";

/** Rows that are shown at first, and with each click on "more". */
const ROWS = 50;

interface Column {
  id: Order["column"];
  title: string;
  /** What the column has, as a tooltip of the heading. */
  hint: string;
  left?: boolean;
  text(trial: TrialView, model: SearchModel): string;
}

interface Row {
  element: HTMLTableRowElement;
  choose: HTMLInputElement;
  pick: HTMLButtonElement;
  stop: HTMLButtonElement;
  state: HTMLElement;
  cells: HTMLTableCellElement[];
}

export interface TableOptions {
  onPick(trial: number): void;
  /** May answer false, now or later: the trial was not asked to stop. */
  onStop(trial: number): unknown;
  onOpen?(trial: number): void;
  onCompare?(trials: number[]): void;
  /** The order has changed, or more rows are wanted. */
  onChange(): void;
}

export class TrialTable {
  readonly element: HTMLElement;
  private readonly head = h("tr", { role: "row" });
  private readonly body = h("tbody", { role: "rowgroup" });
  private readonly more: HTMLButtonElement;
  private readonly compare: HTMLButtonElement;
  /** The trials that are to be compared. */
  private readonly chosen = new Set<number>();
  private readonly rows = new Map<number, Row>();
  private columns: Column[] = [];
  private titles = "";
  private order: Order = BEST_FIRST;
  private limit = ROWS;

  constructor(private readonly options: TableOptions) {
    // In narrow places the cells are no table's for the style sheet, and so for a screen reader only by their roles.
    const head = h("thead", { role: "rowgroup" }, this.head);
    const table = h("table", { role: "table", "aria-label": "trials" }, head, this.body);
    this.more = button("", () => this.showMore(), { class: "ddl-more" });
    this.compare = button("", () => options.onCompare?.([...this.chosen]), { class: "ddl-compare-trials" });
    this.element = scrollBox("ddl-table ddl-trials", "trials", table, this.more);
    if (options.onCompare) this.element.prepend(h("div", { class: "ddl-trials-bar" }, this.compare));
    this.drawCompare();
  }

  draw(model: SearchModel, emphasis: Emphasis): void {
    const { info } = model;
    if (!info) return;
    setVisible(this.element, model.trials.size > 0);
    this.drawHead(model);
    const chosen = [...model.trials.values()].filter(emphasis.isChosen);
    const trials = ordered(chosen, this.order, info.direction, (trial) => model.seconds(trial));
    const elements = trials.slice(0, this.limit).map((trial) => this.drawRow(trial, model, emphasis));
    setChildren(this.body, elements);
    const left = trials.length - elements.length;
    setVisible(this.more, left > 0);
    setText(this.more, `${left} more`);
  }

  private drawHead(model: SearchModel): void {
    const { metric = "", others = [], axes = [] } = model.info ?? {};
    const parameters = axes.map(({ name }) => name);
    this.columns = columns(metric, others, parameters);
    const titles = JSON.stringify([this.columns.map(({ title }) => title), this.order]);
    if (titles === this.titles) return;
    this.titles = titles;
    this.head.replaceChildren(
      ...this.columns.map(({ id, title, hint, left }) => {
        const sorted = this.order.column === id ? (this.order.descending ? "descending" : "ascending") : undefined;
        const sort = button(title, () => this.sort(id, model.info?.direction ?? "max"), { class: "ddl-sort" });
        const attributes = { scope: "col", role: "columnheader", class: left && "ddl-left", "aria-sort": sorted };
        return h("th", { ...attributes, title: hint }, sort);
      }),
    );
  }

  private showMore(): void {
    this.limit += ROWS;
    this.options.onChange();
  }

  /** Sorts by a column: the other way round at the second click, best first again at the third. */
  private sort(column: Order["column"], direction: "max" | "min"): void {
    const first = column === "value" && direction === "max";
    if (this.order.column !== column) this.order = { column, descending: first };
    else if (this.order.descending === first) this.order = { column, descending: !first };
    else this.order = BEST_FIRST;
    this.options.onChange();
  }

  private drawRow(trial: TrialView, model: SearchModel, emphasis: Emphasis): HTMLElement {
    const { element, choose, pick, stop, state, cells } = this.row(trial.number);
    const picked = emphasis.picked === trial.number;
    setAttribute(element, "data-state", emphasis.best.has(trial.number) ? "best" : trial.state);
    setAttribute(element, "data-picked", picked);
    setAttribute(pick, "aria-pressed", String(picked));
    choose.disabled = !trial.run;
    setText(state, stateOf(trial, emphasis.best.has(trial.number)));
    setVisible(stop, trial.state === "training" && !model.over && !model.info?.waiting);
    this.columns.slice(2).forEach((column, i) => {
      const cell = cells[i];
      if (cell) setText(cell, column.text(trial, model));
    });
    return element;
  }

  private row(trial: number): Row {
    const known = this.rows.get(trial);
    if (known && known.cells.length === this.columns.length - 2) return known;
    const act = (text: string, label: string, onClick: () => unknown, name: string) =>
      button(text, onClick, { class: `ddl-${name}-trial`, "aria-label": label });
    const pick = act(String(trial), `trial ${trial}`, () => this.options.onPick(trial), "pick");
    const stop = act("stop", `stop trial ${trial}`, () => this.askToStop(trial, stop), "stop");
    const open = act("open", `open trial ${trial}`, () => this.options.onOpen?.(trial), "open");
    const state = h("span");
    const choose = h("input", { type: "checkbox", "aria-label": `compare trial ${trial}` });
    choose.checked = this.chosen.has(trial);
    choose.addEventListener("change", () => {
      if (choose.checked) this.chosen.add(trial);
      else this.chosen.delete(trial);
      this.drawCompare();
    });
    const cells = this.columns.slice(2).map(({ title }) => h("td", { role: "cell", "data-title": title }));
    const { onCompare, onOpen } = this.options;
    const first = h("td", { role: "cell", class: "ddl-left" }, ...(onCompare ? [choose, " "] : []), pick);
    const parts = [state, " ", ...(onOpen ? [open, " "] : []), stop];
    const second = h("td", { role: "cell", class: "ddl-left ddl-trial-state" }, ...parts);
    const row = { element: h("tr", { role: "row" }, first, second, ...cells), choose, pick, stop, state, cells };
    this.rows.set(trial, row);
    return row;
  }

  private async askToStop(trial: number, stop: HTMLButtonElement): Promise<void> {
    setAttribute(stop, "disabled", true);
    if ((await this.options.onStop(trial)) !== false) return;
    setAttribute(stop, "disabled", false);
    stop.focus();
  }

  private drawCompare(): void {
    const count = this.chosen.size;
    this.compare.disabled = count < 2;
    setText(this.compare, count < 2 ? "Compare trials" : `Compare ${count} trials`);
  }
}

function columns(metric: string, others: readonly string[], params: readonly string[]): Column[] {
  return [
    { id: "number", title: "trial", hint: "number of the trial", left: true, text: () => "" },
    { id: "state", title: "state", hint: "what the trial does, or why it ended", left: true, text: () => "" },
    { id: "value", title: metric, hint: `${metric} after the last epoch`, text: ({ value }) => number(value) },
    ...others.map((title, i): Column => {
      return { id: `other:${i}`, title, hint: `${title} at the end`, text: ({ others: values }) => number(values[i]) };
    }),
    ...params.map((title, i): Column => {
      const hint = `value of ${title} in the trial`;
      return { id: `param:${i}`, title, hint, text: ({ params: values }) => shown(values[i]) };
    }),
    { id: "epochs", title: "epochs", hint: `epochs with a value of ${metric}`, text: ({ epochs }) => String(epochs) },
    {
      id: "seconds",
      title: "time",
      hint: "from the start of the trial's run, with waiting",
      text: (trial, model) => duration(model.seconds(trial)),
    },
  ];
}

function shown(value: TrialView["params"][number] | undefined): string {
  if (value === undefined) return UNKNOWN;
  return typeof value === "number" ? number(value) : String(value ?? "None");
}

/** "best", "training", "pruned after epoch 3: ...", "finished, tried 2 times". */
function stateOf(trial: TrialView, best: boolean): string {
  const again = trial.tries > 1 ? `, tried ${trial.tries} times` : "";
  if (best) return `best${again}`;
  const reason = trial.reason.startsWith(trial.state) ? trial.reason : `${trial.state}: ${trial.reason}`;
  return `${trial.reason ? reason : trial.state}${again}`;
}
