/** The table of the workers: what each is, what it uses, and whether it keeps up. */

import { attribute, h, show, text } from "./dom";
import { gigabytes, gigabytesOf, number, percent, UNKNOWN } from "./format";
import type { Numbers, RunModel, Worker } from "./model";
import { slower } from "./stragglers";

interface Column {
  title: string;
  left?: boolean;
  /** Left out in narrow places. */
  minor?: boolean;
  /** Where it is shown; everywhere if not said. */
  when?: (model: RunModel) => boolean;
  /** The cell's text, or an element that is drawn into it. */
  cell: (worker: Worker, model: RunModel) => string;
  meter?: (numbers: Numbers) => number;
}

/** Characters of a name that every column has room for. */
const LONG = 20;

const isPs = (model: RunModel) => model.run?.strategy === "ps";
const reduces = (model: RunModel) => model.ranks().some(({ numbers }) => numbers.summing > 0);
const hasNetwork = (model: RunModel) => model.ranks().some(({ numbers }) => numbers.network > 0);
const hasGpu = (model: RunModel) => model.ranks().some(({ numbers }) => Number.isFinite(numbers.gpu));

const COLUMNS: readonly Column[] = [
  { title: "rank", left: true, cell: ({ facts }) => String(facts.rank) },
  { title: "host", left: true, cell: ({ facts }) => facts.host || UNKNOWN },
  { title: "device", left: true, minor: true, cell: ({ facts }) => device(facts.device, facts.cores) },
  {
    title: "GPU",
    when: hasGpu,
    cell: ({ numbers }) => (Number.isFinite(numbers.gpu) ? percent(numbers.gpu) : "no GPU"),
    meter: ({ gpu }) => gpu,
  },
  {
    title: "GPU memory",
    minor: true,
    when: hasGpu,
    cell: ({ numbers: n }) => gigabytesOf(n.gpu_memory, n.gpu_memory_total),
  },
  { title: "CPU", cell: ({ numbers }) => percent(numbers.cpu) },
  { title: "memory", minor: true, cell: ({ numbers }) => gigabytes(numbers.memory) },
  { title: "compute, ms a step", when: (model) => !isPs(model), cell: ({ numbers }) => number(numbers.compute) },
  { title: "waiting", when: (model) => !isPs(model), cell: ({ numbers }) => percent(100 * numbers.waiting) },
  { title: "network", minor: true, when: hasNetwork, cell: ({ numbers }) => percent(100 * numbers.network) },
  { title: "summing", minor: true, when: reduces, cell: ({ numbers }) => percent(100 * numbers.summing) },
  { title: "samples/s", when: isPs, cell: ({ numbers }) => number(numbers.rate) },
  {
    title: "staleness",
    when: isPs,
    cell: ({ numbers: n }) =>
      Number.isFinite(n.staleness) ? `${number(n.staleness)}, at most ${number(n.staleness_max)}` : UNKNOWN,
  },
  { title: "commits", when: isPs, cell: ({ numbers }) => number(numbers.commits) },
];

export class Table {
  readonly element: HTMLElement;
  private readonly head = h("tr");
  private readonly body = h("tbody");
  private readonly rows = new Map<number, HTMLTableRowElement>();
  private titles = "";

  constructor() {
    const table = h("table", { "aria-label": "workers" }, h("thead", {}, this.head), this.body);
    this.element = h("div", { class: "ddl-table", tabindex: 0, role: "group", "aria-label": "workers" }, table);
  }

  /** Draws a row for each of `workers`; `ratios` tells how far each rank is behind the median. */
  draw(model: RunModel, workers: readonly Worker[], ratios: Map<number, number>): void {
    show(this.element, workers.length > 0);
    const columns = COLUMNS.filter((column) => column.when?.(model) ?? true);
    const titles = [...columns.map((column) => column.title), "behind median"];
    if (this.titles !== titles.join()) {
      this.titles = titles.join();
      this.head.replaceChildren(...titles.map((title, i) => th(title, columns[i])));
      this.rows.clear();
    }
    const failed = model.state?.failure?.rank;
    const drawn = workers.map((worker) => {
      const { rank } = worker.facts;
      const row = this.rows.get(rank) ?? newRow(columns);
      this.rows.set(rank, row);
      columns.forEach((column, i) => {
        fill(row.cells[i] as HTMLTableCellElement, column, worker, model);
      });
      const lag = slower(ratios.get(rank));
      const verdict = rank === failed ? "failed" : lag || UNKNOWN;
      text(row.cells[columns.length] as HTMLTableCellElement, verdict);
      // What is over holds nobody back any more.
      attribute(row, "data-lag", (lag !== "" && !model.over) || rank === failed);
      attribute(row, "title", [worker.facts.state, worker.facts.message].filter(Boolean).join(": ") || undefined);
      return row;
    });
    if (drawn.length !== this.body.rows.length || drawn.some((row, i) => row !== this.body.rows[i])) {
      this.body.replaceChildren(...drawn);
    }
  }
}

/** "CPU, 8 cores", or the name of the GPU. */
export function device(name: string, cores: number): string {
  if (!name) return UNKNOWN;
  return cores && /^cpu$/i.test(name) ? `CPU, ${cores} core${cores === 1 ? "" : "s"}` : name;
}

function th(title: string, column: Column | undefined): HTMLElement {
  return h("th", { scope: "col", class: classOf(column) }, title);
}

function classOf(column: Column | undefined): string | undefined {
  return [column?.left && "ddl-left", column?.minor && "ddl-minor"].filter(Boolean).join(" ") || undefined;
}

function newRow(columns: readonly Column[]): HTMLTableRowElement {
  const cells = columns.map((column) => h("td", { class: classOf(column) }));
  return h("tr", {}, ...cells, h("td"));
}

function fill(cell: HTMLTableCellElement, column: Column, worker: Worker, model: RunModel): void {
  const words = column.cell(worker, model);
  const value = column.meter?.(worker.numbers);
  attribute(cell, "data-dim", words === UNKNOWN || words === "no GPU");
  // A host's full name may be too long for its column.
  attribute(cell, "title", words.length > LONG && words);
  if (value === undefined || !Number.isFinite(value)) {
    text(cell, words);
    return;
  }
  let fill = cell.querySelector<HTMLElement>(".ddl-meter i");
  if (!fill) {
    fill = h("i");
    // The number stands beside it, so the bar is decoration.
    cell.replaceChildren(h("span", { class: "ddl-meter", "aria-hidden": "true" }, fill), h("span"));
  }
  fill.style.width = `${Math.min(Math.max(value, 0), 100)}%`;
  text(cell.lastElementChild as Element, words);
}
