/** The four charts of a run: loss, another metric, samples/s of the job, and what the devices do. */

import { epochAt, epochTicks, timeTicks } from "./axes";
import { Chart, type ChartContent, type Trace, valueAt } from "./chart";
import { choice, h } from "./dom";
import { duration, gigabytes, number, percent } from "./format";
import type { Line, RunModel } from "./model";
import type { Palette } from "./theme";

const DEVICES = {
  gpu: { title: "GPU %", says: percent, range: [0, 100] as const, scale: 1 },
  cpu: { title: "CPU %", says: percent, range: "zero" as const, scale: 1 },
  memory: { title: "memory, GB", says: (gb: number) => gigabytes(gb * 1e9), range: "zero" as const, scale: 1e-9 },
};
type Device = keyof typeof DEVICES;

/** The first steps of a fit take time; before them the charts would only move about. */
const DEVICES_ALONE_SECONDS = 30;

const SPREAD = ["low", "median", "high"];

/** So many ranks have their number in a heading; of more it says between which values they are. */
const NUMBERED = 6;

let views = 0;

export class Charts {
  readonly element: HTMLElement;
  private readonly charts: Chart[];
  private readonly observer: ResizeObserver;
  private readonly lossTitle = h("h3", {}, "loss");
  private readonly metric: HTMLSelectElement;
  private readonly device: HTMLSelectElement;
  private model: RunModel | null = null;

  constructor(colours: () => Palette) {
    const draw = () => this.model && this.draw(this.model);
    const [metric, metricTitle] = choice("metric of the second chart");
    const [device, deviceTitle] = choice("measure of the fourth chart");
    for (const select of [metric, device]) select.addEventListener("change", draw);
    this.metric = metric;
    this.device = device;
    // Charts that share a scale share a pointer: the names must not be those of another view in the page.
    const [steps, time] = [`ddl-steps-${views}`, `ddl-time-${views++}`];
    this.charts = [
      new Chart(this.lossTitle, steps, colours),
      new Chart(h("h3", {}, metricTitle), steps, colours),
      new Chart(h("h3", {}, "samples/s"), time, colours),
      new Chart(h("h3", {}, deviceTitle), time, colours),
    ];
    this.element = h("div", { class: "ddl-charts" }, ...this.charts.map((chart) => chart.element));
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.element);
  }

  draw(model: RunModel): void {
    this.model = model;
    const names = model.metrics();
    const first = names.includes("loss") ? "loss" : names[0];
    options(
      this.metric,
      names.filter((name) => name !== first).map((name) => [name, name]),
    );
    this.lossTitle.textContent = first ?? "loss";
    const devices = (Object.keys(DEVICES) as Device[]).filter((name) => deviceKeys(model, name).length);
    options(
      this.device,
      devices.map((name) => [name, DEVICES[name].title]),
    );
    const contents = [
      first === undefined ? null : metricContent(model, first),
      this.metric.value ? metricContent(model, this.metric.value) : null,
      rateContent(model),
      this.device.value ? deviceContent(model, this.device.value as Device) : null,
    ];
    const steps = first !== undefined || contents[2] !== null;
    this.element.hidden = !steps && !longWithout(model);
    this.element.dataset.charts = String(contents.filter((content) => content !== null).length);
    this.charts.forEach((chart, i) => {
      chart.draw(contents[i] ?? null);
    });
    this.resize();
  }

  recolour(): void {
    for (const chart of this.charts) chart.recolour();
  }

  destroy(): void {
    this.observer.disconnect();
    for (const chart of this.charts) chart.destroy();
  }

  private resize(): void {
    for (const chart of this.charts) chart.resize();
  }
}

/** Whether a run has trained for a while and reported no steps: then what the devices do is all there is to see. */
function longWithout(model: RunModel): boolean {
  const started = model.state?.started ?? null;
  return (
    started !== null &&
    (model.over || model.now() - started > DEVICES_ALONE_SECONDS) &&
    deviceKeys(model, "cpu").length > 0
  );
}

function metricContent(model: RunModel, name: string): ChartContent {
  const train = model.line(`metric:${name}`);
  const validation = model.line(`metric:val_${name}`);
  const epochs = model.line(`epochs:${name}`);
  const traces: Trace[] = [];
  // Keras' running values begin anew in each epoch: once there are epochs to compare, their exact values are the line.
  const whole = (epochs?.x.length ?? 0) > 1;
  const newest = model.latest[name];
  if (train)
    traces.push({ line: train, colour: 0, newest, faint: whole, says: number, when: whole ? "pointed" : "always" });
  if (epochs && whole) traces.push({ line: epochs, colour: 0, newest, says: number, when: "resting" });
  if (validation) {
    const says = (value: number | null) => `val ${number(value)}`;
    traces.push({ line: validation, colour: 1, dash: true, newest: model.latest[`val_${name}`], says });
  }
  const starts = model.line("epoch");
  const steps = model.progress?.steps ?? null;
  const words = traces.filter(({ when }) => when !== "pointed").map((trace) => trace.says(trace.newest ?? null));
  return {
    traces,
    summary: `${name} over the epochs, now ${words.join(", ")}`,
    span: spanOf(
      traces.map(({ line }) => line),
      0,
    ),
    ticks: (from, to, most) => epochTicks(starts, steps, from, to, most),
    where: (x) => {
      const epoch = epochAt(starts, steps, x);
      return epoch === null ? `step ${number(x)}` : `epoch ${epoch.toFixed(1)}`;
    },
  };
}

function rateContent(model: RunModel): ChartContent | null {
  const line = model.line("rate");
  if (!line) return null;
  const { rate, peak } = model.progress ?? {};
  const share = rate && peak && !model.over ? `${percent((100 * rate) / peak)} of peak` : undefined;
  return {
    traces: [{ line, colour: -1, newest: rate ?? undefined, says: number }],
    summary: `samples per second of the job over time, now ${number(rate)}`,
    ticks: timeTicks,
    where: (x) => `at ${duration(x)}`,
    range: "zero",
    span: timeSpan(model),
    remark: share,
  };
}

function deviceContent(model: RunModel, device: Device): ChartContent {
  const { title, says, range, scale } = DEVICES[device];
  const keys = deviceKeys(model, device);
  const spread = keys.some((key) => SPREAD.includes(key));
  // The title has the unit.
  const plain = (value: number | null) => says(value ?? Number.NaN).replace(/ (%|GB)$/, "");
  const lines = keys.map((key) => scaled(model.line(`${device}:${key}`) as Line, scale));
  const many = !spread && keys.length > NUMBERED;
  const traces = keys.map((key, i): Trace => {
    return {
      line: lines[i] as Line,
      colour: spread ? ([2, -1, 1][i] ?? 0) : i,
      thin: !spread || key !== "median",
      dash: i >= 8,
      // Few ranks are told apart by colour and number.
      says: (value) => (spread ? plain(value) : keys.length > 2 ? key : `${key}: ${plain(value)}`),
      ...(many && { when: "never" }),
    };
  });
  const between = (x: number) => {
    const values = lines.map((line) => valueAt(line, x)).filter((value) => value !== null);
    return `${plain(Math.min(...values))} – ${plain(Math.max(...values))}`;
  };
  const without = device === "gpu" && !spread ? model.ranks().filter(({ numbers }) => Number.isNaN(numbers.gpu)) : [];
  const none = without.length ? `${without.map(({ facts }) => facts.rank).join(" ")} none` : undefined;
  return {
    traces,
    summary: `${title} of ${spread ? "the ranks: lowest, median, highest" : `ranks ${keys.join(", ")}`} over time`,
    ticks: timeTicks,
    where: (x) => (many ? `${between(x)} at ${duration(x)}` : `at ${duration(x)}`),
    range,
    span: timeSpan(model),
    remark: many ? between(Number.POSITIVE_INFINITY) : none,
    hint: spread ? "lowest, median, highest of the ranks" : many ? "lowest and highest of the ranks" : undefined,
  };
}

/** From where to where the charts over time go: all of them alike. */
function timeSpan(model: RunModel): [number, number] {
  const keys = [...model.lines.keys()].filter((key) => /^(rate$|gpu:|cpu:)/.test(key));
  return spanOf(keys.map((key) => model.line(key) as Line));
}

function spanOf(lines: readonly Line[], first?: number): [number, number] {
  const from = first ?? Math.min(...lines.map(({ x }) => x[0] ?? Number.POSITIVE_INFINITY));
  const to = Math.max(...lines.map(({ x }) => x.at(-1) ?? 0));
  return to > from ? [from, to] : [from, from + 1];
}

function deviceKeys(model: RunModel, device: Device): string[] {
  const prefix = `${device}:`;
  const keys = [...model.lines.keys()].filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length));
  const order = (key: string) => (SPREAD.includes(key) ? SPREAD.indexOf(key) : Number(key));
  return keys.sort((a, b) => order(a) - order(b));
}

function scaled(line: Line, scale: number): Line {
  return scale === 1 ? line : { x: line.x, y: line.y.map((y) => (y === null ? null : y * scale)) };
}

/** Fills a select; what was chosen stays chosen. */
function options(select: HTMLSelectElement, entries: readonly (readonly [string, string])[]): void {
  const before = [...select.options].map((option) => option.value).join("\n");
  if (before === entries.map(([value]) => value).join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(...entries.map(([value, title]) => h("option", { value }, title)));
  if (entries.some(([value]) => value === chosen)) select.value = chosen;
}
