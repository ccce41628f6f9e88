/**
 * The four charts of a run: loss, another metric, samples/s of the job, and the load of the devices; below samples/s the
 * number of workers, where they come and go.
 */

import { DEVICES, type Device, SPREAD, type Spread } from "../generated";
import { epochTicks, type Range, timeTicks } from "./axes";
import { Chart, type ChartContent, type Trace, valueAt } from "./chart";
import { ChartGroup } from "./chartgroup";
import { createSelect, h, type Option, setOptions } from "./dom";
import { gigabytes, number, percent } from "./format";
import type { Line, RunModel } from "./model";
import { atStep, atTime } from "./moment";
import type { Palette } from "./theme";

interface DeviceChart {
  title: string;
  format(value: number): string;
  yRange: Range;
  /** Factor from the unit of the series to that of the chart. */
  scale: number;
}

const DEVICE_CHARTS: Record<Device, DeviceChart> = {
  gpu: { title: "GPU %", format: percent, yRange: [0, 100], scale: 1 },
  cpu: { title: "CPU %", format: percent, yRange: "zero", scale: 1 },
  data: { title: "waiting for data, %", format: percent, yRange: [0, 100], scale: 100 },
  memory: { title: "memory, GB", format: (gb) => gigabytes(gb * 1e9), yRange: "zero", scale: 1e-9 },
};

/** The charts appear with the first steps, or after this time if a run reports none. */
const DEVICES_ALONE_SECONDS = 30;

/** Up to this number of ranks, the heading has the value of each; above it, the lowest and the highest. */
const MAX_VALUES = 6;

/** Colours of the lowest, the median and the highest line: indices in the palette. */
const SPREAD_COLOURS: Record<Spread, number> = { low: 2, median: -1, high: 4 };

/** Ranks begin at this colour: those before it are training's and validation's, and no rank's. */
const RANK_COLOUR = 2;

/** The number of colours for ranks; further ones are dashed. */
const RANK_COLOURS = 6;

/** Of the heading of a metric with a band. */
const BAND_HINT = "the job; under the pointer also the lowest, the median and the highest rank";

/** Begins the value of the option of the second chart that shows the ranks' own values of a metric. */
const BY_RANK = "by rank: ";

/** Of the chart of the number of workers, in pixels. */
const WORKERS_HEIGHT = 52;

let views = 0;

export class Charts extends ChartGroup {
  protected readonly charts: Chart[];
  private readonly lossTitle = h("h3", {}, "loss");
  private readonly metric: HTMLSelectElement;
  private readonly device: HTMLSelectElement;
  private model: RunModel | null = null;

  constructor(colours: () => Palette) {
    super();
    const draw = () => this.model && this.draw(this.model);
    const [metric, metricTitle] = createSelect("metric in the second chart");
    const [device, deviceTitle] = createSelect("resource in the fourth chart");
    for (const select of [metric, device]) select.addEventListener("change", draw);
    this.metric = metric;
    this.device = device;
    // Charts with the same sync key share a pointer, so the keys must be unique in the page.
    const [steps, time] = [`ddl-steps-${views}`, `ddl-time-${views++}`];
    const rate = new Chart(h("h3", {}, "samples/s"), time, colours);
    const workers = new Chart(h("h3", {}, "workers"), time, colours, WORKERS_HEIGHT);
    this.charts = [
      new Chart(this.lossTitle, steps, colours),
      new Chart(h("h3", {}, metricTitle), steps, colours),
      rate,
      new Chart(h("h3", {}, deviceTitle), time, colours),
      workers,
    ];
    this.element.append(...this.charts.map((chart) => chart.element));
    rate.element.append(workers.element);
  }

  draw(model: RunModel): void {
    this.model = model;
    const metrics = model.metrics();
    const first = metrics.includes("loss") ? "loss" : metrics[0];
    const others = metrics.filter((name) => name !== first);
    const byRank = metrics.filter((name) => linesByRank(model, name).length);
    setOptions(this.metric, [
      ...others.map((name): Option => [name, name]),
      ...byRank.map((name): Option => [BY_RANK + name, `${name} by rank`]),
    ]);
    this.lossTitle.textContent = first ?? "loss";
    const devices = DEVICES.filter((name) => deviceLines(model, name).length);
    const deviceOptions = devices.map((name): Option => [name, DEVICE_CHARTS[name].title]);
    setOptions(this.device, deviceOptions);
    const device = devices.find((name) => name === this.device.value);
    const rate = rateContent(model);
    const contents = [
      first === undefined ? null : metricContent(model, first),
      this.metric.value ? secondContent(model, this.metric.value) : null,
      rate,
      device ? deviceContent(model, device) : null,
    ];
    const hasSteps = first !== undefined || rate !== null;
    this.element.hidden = !hasSteps && !runsWithoutSteps(model);
    const count = contents.filter((content) => content !== null).length;
    this.element.dataset.charts = String(count);
    this.element.style.setProperty("--ddl-columns", String(count));
    [...contents, rate && workersContent(model)].forEach((content, i) => {
      this.charts[i]?.draw(content);
    });
    this.resize();
  }
}

/** Whether a run has been running for a while without reporting steps: then only the devices can be charted. */
function runsWithoutSteps(model: RunModel): boolean {
  const started = model.state?.started ?? null;
  return (
    started !== null &&
    (model.over || model.now() - started > DEVICES_ALONE_SECONDS) &&
    deviceLines(model, "cpu").length > 0
  );
}

function secondContent(model: RunModel, chosen: string): ChartContent {
  return chosen.startsWith(BY_RANK) ? rankContent(model, chosen.slice(BY_RANK.length)) : metricContent(model, chosen);
}

/** A metric of the job: over the band from the lowest to the highest rank. */
function metricContent(model: RunModel, name: string): ChartContent {
  const [low, median, high] = SPREAD.map((which) => model.line(`${which}:${name}`));
  const train = model.line(`metric:${name}`);
  const validation = model.line(`metric:val_${name}`);
  const exact = model.exactLine(name);
  const traces: Trace[] = [];
  if (low && median && high) {
    const part = { colour: 0, thin: true, faint: true, format: number, shown: "never" } as const;
    traces.push({ ...part, line: low, filled: true }, { ...part, line: high }, { ...part, line: median, dash: true });
  }
  const newest = model.latest[name];
  if (train) {
    const shown = exact ? "hover" : "always";
    traces.push({ line: train, colour: 0, newest, faint: exact !== undefined, format: number, shown });
  }
  if (exact) traces.push({ line: exact, colour: 0, newest, format: number, shown: "idle" });
  if (validation) {
    const format = (value: number | null) => `val ${number(value)}`;
    traces.push({ line: validation, colour: 1, dash: true, newest: model.latest[`val_${name}`], format });
  }
  const values = traces
    .filter(({ shown }) => shown === undefined || shown === "always" || shown === "idle")
    .map((trace) => trace.format(trace.newest ?? null));
  const axis = overEpochs(model, traces);
  const ranks = (x: number) => [low, median, high].map((line) => line && number(valueAt(line, x))).join(" – ");
  return {
    ...axis,
    traces,
    summary: `${name} over the epochs, now ${values.join(", ")}`,
    ...(low && { remarkAt: (x: number) => `ranks ${ranks(x)}`, hint: BAND_HINT }),
  };
}

/** The ranks' own values of a metric. */
function rankContent(model: RunModel, name: string): ChartContent {
  const { traces, summary, many, lowToHigh, hint } = byRank(linesByRank(model, name), number);
  const axis = overEpochs(model, traces);
  return {
    ...axis,
    traces,
    summary: `${name} of ${summary} over the epochs`,
    ...(many && { remarkAt: lowToHigh }),
    remark: many ? lowToHigh(Number.POSITIVE_INFINITY) : undefined,
    hint,
  };
}

/** The x axis of a chart over epochs. */
function overEpochs(model: RunModel, traces: readonly Trace[]): Pick<ChartContent, "xRange" | "ticks" | "formatX"> {
  const starts = model.line("epoch");
  const steps = model.progress?.steps ?? null;
  const lines = traces.map(({ line }) => line);
  return {
    xRange: xRangeOf(lines, 0),
    ticks: (from, to, count) => epochTicks(starts, steps, from, to, count),
    formatX: (x) => atStep(model, x),
  };
}

function rateContent(model: RunModel): ChartContent | null {
  const line = model.line("rate");
  if (!line) return null;
  const { rate, peak } = model.progress ?? {};
  const share = rate && peak && !model.over ? `${percent((100 * rate) / peak)} of peak` : undefined;
  return {
    traces: [{ line, colour: -1, newest: rate ?? undefined, format: number }],
    summary: `samples per second of the job over time, now ${number(rate)}`,
    ...overTime(model),
    yRange: "zero",
    remark: share,
  };
}

/** The number of workers over time; null where they do not come and go. */
function workersContent(model: RunModel): ChartContent | null {
  const line = model.line("workers");
  if (!line) return null;
  const top = Math.max(...line.y.map((y) => y ?? 0));
  return {
    traces: [{ line, colour: -1, format: number, stepped: true }],
    summary: `number of workers over time, now ${number(line.y.at(-1))}`,
    ...overTime(model),
    yRange: [0, top],
    top,
  };
}

function deviceContent(model: RunModel, device: Device): ChartContent {
  const { title, format, yRange, scale } = DEVICE_CHARTS[device];
  const found = deviceLines(model, device).map(([key, line]): [string, Line] => [key, scaled(line, scale)]);
  // The unit is in the title.
  const plain = (value: number | null) => format(value ?? Number.NaN).replace(/ (%|GB)$/, "");
  const { traces, summary, spread, many, lowToHigh, hint } = byRank(found, plain);
  const without = device === "gpu" && !spread ? model.ranks().filter(({ numbers }) => Number.isNaN(numbers.gpu)) : [];
  const none = without.length ? `${without.map(({ info }) => info.rank).join(" ")} none` : undefined;
  return {
    traces,
    summary: `${title} of ${summary} over time`,
    ...overTime(model),
    ...(many && { remarkAt: lowToHigh }),
    yRange,
    remark: many ? lowToHigh(Number.POSITIVE_INFINITY) : none,
    hint,
  };
}

interface ByRank {
  traces: Trace[];
  /** Whose lines they are, in words. */
  summary: string;
  /** Whether the lines are the lowest, the median and the highest rank. */
  spread: boolean;
  /** Whether the heading has the lowest and the highest value alone. */
  many: boolean;
  lowToHigh(x: number): string;
  hint: string | undefined;
}

/** Lines of ranks, or the lowest, the median and the highest. */
function byRank(found: readonly [key: string, line: Line][], format: (value: number | null) => string): ByRank {
  const keys = found.map(([key]) => key);
  const spread = keys.some(isSpread);
  const many = !spread && keys.length > MAX_VALUES;
  const traces = found.map(([key, line], i): Trace => {
    return {
      line,
      colour: isSpread(key) ? SPREAD_COLOURS[key] : RANK_COLOUR + (i % RANK_COLOURS),
      thin: !spread || key !== "median",
      dash: i >= RANK_COLOURS,
      // With more than two ranks there is no room for the values: the heading is a legend then.
      format: (value) => (spread ? format(value) : keys.length > 2 ? key : `${key}: ${format(value)}`),
      ...(many && { shown: "never" }),
    };
  });
  return {
    traces,
    summary: spread ? "the ranks: lowest, median, highest" : `ranks ${keys.join(", ")}`,
    spread,
    many,
    lowToHigh: (x) => {
      const values = traces.map(({ line }) => valueAt(line, x)).filter((value) => value !== null);
      return `${format(Math.min(...values))} – ${format(Math.max(...values))}`;
    },
    hint: spread ? "lowest, median and highest rank" : many ? "lowest and highest rank" : undefined,
  };
}

/** The common x axis of the charts over time. */
function overTime(model: RunModel): Pick<ChartContent, "xRange" | "ticks" | "formatX"> {
  const lines = [...model.lines].filter(([key]) => /^(rate$|gpu:|cpu:)/.test(key)).map(([, line]) => line);
  return { xRange: xRangeOf(lines), ticks: timeTicks, formatX: (x) => atTime(model, x) };
}

function xRangeOf(lines: readonly Line[], first?: number): [number, number] {
  const from = first ?? Math.min(...lines.map(({ x }) => x[0] ?? Number.POSITIVE_INFINITY));
  const to = Math.max(...lines.map(({ x }) => x.at(-1) ?? 0));
  return to > from ? [from, to] : [from, from + 1];
}

/** The lines of a device: one per rank in order, or lowest, median and highest. */
function deviceLines(model: RunModel, device: Device): [key: string, line: Line][] {
  const prefix = `${device}:`;
  const found = [...model.lines].filter(([key]) => key.startsWith(prefix));
  return found
    .map(([key, line]): [string, Line] => [key.slice(prefix.length), line])
    .sort(([a], [b]) => orderOf(a) - orderOf(b));
}

/** The ranks' own lines of a metric, in order, or lowest, median and highest; none in a run of one rank. */
function linesByRank(model: RunModel, name: string): [key: string, line: Line][] {
  const found = (keys: readonly (number | Spread)[]) =>
    keys.flatMap((key): [string, Line][] => {
      const line = model.line(`${key}:${name}`);
      return line ? [[String(key), line]] : [];
    });
  const ranks = found(model.ranks().map(({ info }) => info.rank));
  return ranks.length ? ranks : found(SPREAD);
}

function orderOf(key: string): number {
  return isSpread(key) ? SPREAD.indexOf(key) : Number(key);
}

function isSpread(key: string): key is Spread {
  return SPREAD.some((name) => name === key);
}

function scaled(line: Line, scale: number): Line {
  return scale === 1 ? line : { x: line.x, y: line.y.map((y) => (y === null ? null : y * scale)) };
}
