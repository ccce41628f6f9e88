/** The table of the workers: what each one is, what it uses, and whether it keeps up. */

import { h, scrollBox, setAttribute, setChildren, setText, setVisible } from "./dom";
import { gigabytes, gigabytesOf, number, percent, UNKNOWN, wattsOf } from "./format";
import { hasLeft, type Numbers, type RunModel, type Worker } from "./model";
import { slower } from "./stragglers";

interface Column {
  title: string;
  /** What the numbers are, as a tooltip of the heading. */
  hint: string;
  left?: boolean;
  /** Left out in narrow places. */
  minor?: boolean;
  /** Whether the column is shown; by default it is. */
  when?: (model: RunModel) => boolean;
  text: (worker: Worker) => string;
  /** A percentage that is also drawn as a bar. */
  meter?: (numbers: Numbers) => number;
  /** Says how much slower than the median a worker is that holds the others back. */
  judges?: true;
}

interface Row {
  element: HTMLTableRowElement;
  cells: [Column, HTMLTableCellElement][];
}

/** Longer texts get a tooltip, because the column may be too narrow for them. */
const LONG = 20;

const NO_GPU = "no GPU";

const SLOWER = "“slower”: than the median of the workers, which wait for it";

const isPs = (model: RunModel) => model.run?.strategy === "ps";
const hasSumming = (model: RunModel) => model.ranks().some(({ numbers }) => numbers.summing > 0);
const hasData = (model: RunModel) => model.ranks().some(({ numbers }) => Number.isFinite(numbers.data));
const hasNetwork = (model: RunModel) => model.ranks().some(({ numbers }) => numbers.network > 0);
const hasGpu = (model: RunModel) => model.ranks().some(({ numbers }) => Number.isFinite(numbers.gpu));

const COLUMNS: readonly Column[] = [
  {
    title: "rank",
    hint: "number of the worker; rank 0 is the chief",
    left: true,
    text: ({ info }) => String(info.rank),
  },
  { title: "host", hint: "machine of the worker", left: true, text: ({ info }) => info.host || UNKNOWN },
  {
    title: "device",
    hint: "what it computes on",
    left: true,
    minor: true,
    text: ({ info }) => device(info.device, info.cores),
  },
  {
    title: "GPU",
    hint: "use of its GPUs, their mean",
    when: hasGpu,
    text: ({ numbers }) => (Number.isFinite(numbers.gpu) ? percent(numbers.gpu) : NO_GPU),
    meter: ({ gpu }) => gpu,
  },
  {
    title: "GPU memory",
    hint: "used and total memory of its GPUs",
    minor: true,
    when: hasGpu,
    text: ({ numbers: n }) => gigabytesOf(n.gpu_memory, n.gpu_memory_total),
  },
  {
    title: "GPU power",
    hint: "power that its GPUs draw, and may draw: a GPU in use draws much, whatever its percentage",
    minor: true,
    when: (model) => model.ranks().some(({ numbers }) => Number.isFinite(numbers.gpu_power)),
    text: ({ numbers: n }) => wattsOf(n.gpu_power, n.gpu_power_limit),
  },
  { title: "CPU", hint: "100 % is one core", text: ({ numbers }) => percent(numbers.cpu) },
  {
    title: "memory",
    hint: "memory of its process",
    minor: true,
    when: ({ over }) => !over,
    text: ({ numbers }) => gigabytes(numbers.memory),
  },
  {
    title: "peak memory",
    hint: "most memory of its process",
    minor: true,
    when: ({ over }) => over,
    text: ({ numbers }) => gigabytes(numbers.memory_peak),
  },
  {
    title: "compute, ms/step",
    hint: `time of a step without waiting; ${SLOWER}`,
    when: (model) => !isPs(model),
    text: ({ numbers }) => number(numbers.compute),
    judges: true,
  },
  {
    title: "waiting",
    hint: "share of the step time that it waits for the other workers or the server",
    when: (model) => !isPs(model),
    text: ({ numbers }) => percent(100 * numbers.waiting),
  },
  {
    title: "for data",
    hint: "share of the step time that it waits for the next batch",
    when: hasData,
    text: ({ numbers }) => percent(100 * numbers.data),
  },
  {
    title: "network",
    hint: "share of the step time in transfers between machines",
    minor: true,
    when: hasNetwork,
    text: ({ numbers }) => percent(100 * numbers.network),
  },
  {
    title: "summing",
    hint: "share of the step time in adding up gradients on its machine",
    minor: true,
    when: hasSumming,
    text: ({ numbers }) => percent(100 * numbers.summing),
  },
  {
    title: "samples/s",
    hint: "rows that it trains in a second; the chart has the sum over all workers",
    minor: true,
    when: (model) => !isPs(model) && !hasGpu(model),
    text: ({ numbers }) => number(numbers.rate),
  },
  {
    title: "samples/s",
    hint: `rows that it trains in a second; the chart has the sum over all workers; ${SLOWER}`,
    when: isPs,
    text: ({ numbers }) => number(numbers.rate),
    judges: true,
  },
  {
    title: "staleness",
    hint: "updates of others between reading the model and its own update: mean and maximum",
    when: isPs,
    text: ({ numbers: n }) =>
      Number.isFinite(n.staleness) ? `${number(n.staleness)}, max. ${number(n.staleness_max)}` : UNKNOWN,
  },
  {
    title: "commits",
    hint: "updates that it has sent to the server",
    when: isPs,
    text: ({ numbers }) => number(numbers.commits),
  },
];

export class Table {
  readonly element: HTMLElement;
  private readonly head = h("tr");
  private readonly body = h("tbody");
  private readonly rows = new Map<number, Row>();
  private titles = "";

  constructor() {
    const table = h("table", { "aria-label": "workers" }, h("thead", {}, this.head), this.body);
    this.element = scrollBox("ddl-table", "workers", table);
  }

  /** Draws a row for each of `workers`; `ratios`: rank -> how many times slower than the median. */
  draw(model: RunModel, workers: readonly Worker[], ratios: Map<number, number>): void {
    setVisible(this.element, workers.length > 0);
    const columns = COLUMNS.filter((column) => column.when?.(model) ?? true);
    const titles = columns.map((column) => column.title).join();
    if (this.titles !== titles) {
      this.titles = titles;
      const heads = columns.map((column) =>
        h("th", { scope: "col", class: classOf(column), title: column.hint }, column.title),
      );
      this.head.replaceChildren(...heads);
      this.rows.clear();
    }
    const failed = model.state?.failure?.rank;
    const elements = workers.map((worker) => {
      const { rank, state, message } = worker.info;
      const { element, cells } = this.row(rank, columns);
      const lag = slower(ratios.get(rank));
      const left = hasLeft(worker);
      const verdict = rank === failed ? "failed" : left ? state : lag;
      for (const [column, cell] of cells) drawCell(cell, column, worker, column.judges ? verdict : "");
      // Once the run has ended, a slow rank holds nobody back.
      setAttribute(element, "data-lag", (lag !== "" && !model.over) || rank === failed);
      setAttribute(element, "data-left", left);
      setAttribute(element, "title", [state, message].filter(Boolean).join(": ") || undefined);
      return element;
    });
    setChildren(this.body, elements);
  }

  private row(rank: number, columns: readonly Column[]): Row {
    const known = this.rows.get(rank);
    if (known) return known;
    const cells = columns.map((column): Row["cells"][number] => [column, h("td", { class: classOf(column) })]);
    const row = { element: h("tr", {}, ...cells.map(([, cell]) => cell)), cells };
    this.rows.set(rank, row);
    return row;
  }
}

/** "CPU, 8 cores", or the name of the GPU. */
export function device(name: string, cores: number): string {
  if (!name) return UNKNOWN;
  return cores && /^cpu$/i.test(name) ? `CPU, ${cores} core${cores === 1 ? "" : "s"}` : name;
}

function classOf(column: Column | undefined): string | undefined {
  return [column?.left && "ddl-left", column?.minor && "ddl-minor"].filter(Boolean).join(" ") || undefined;
}

/** @param verdict on the worker, for the column that has it */
function drawCell(cell: HTMLElement, column: Column, worker: Worker, verdict: string): void {
  const value = column.text(worker);
  const text = verdict && value !== UNKNOWN ? `${value} · ${verdict}` : verdict || value;
  const share = column.meter?.(worker.numbers);
  setAttribute(cell, "data-dim", text === UNKNOWN || text === NO_GPU);
  setAttribute(cell, "data-verdict", verdict !== "");
  setAttribute(cell, "title", text.length > LONG && text);
  if (share === undefined || !Number.isFinite(share)) {
    setText(cell, text);
    return;
  }
  let fill = cell.querySelector<HTMLElement>(".ddl-meter i");
  if (!fill) {
    fill = h("i");
    // Hidden from screen readers: the text beside it has the value.
    cell.replaceChildren(h("span", { class: "ddl-meter", "aria-hidden": "true" }, fill), h("span"));
  }
  fill.style.width = `${Math.min(Math.max(share, 0), 100)}%`;
  if (cell.lastElementChild) setText(cell.lastElementChild, text);
}
