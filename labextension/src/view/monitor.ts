/** What a monitor has counted: rates, latency, error, the inputs and outputs by drift, and when to train again. */

import type { MonitoredError, MonitoredThing, MonitorView } from "../generated";
import { copyButton, h, s, scrollBox, setNote, setText, setVisible } from "./dom";
import { clock, date, dateTime, number, percent, plural, UNKNOWN } from "./format";

const WIDTH = 300;
const HEIGHT = 64;
const BINS_WIDTH = 150;
const BINS_HEIGHT = 40;
const MS = 1000;

const TITLES = {
  "input, by drift": "the inputs and outputs of the model, those that have moved most first",
  PSI: "population stability index: how far the shares of the bins have moved since the training; 0 is not at all",
  KS: "Kolmogorov-Smirnov: the largest difference of the two cumulative distributions, from 0 to 1",
  nulls: "share of the rows without a value",
  since: "since when it has been in drift",
};
const SHOWN = "share of the rows in each bin: bars at the training, the line now";

type Values = readonly (number | null)[];

export class Monitor {
  /** Empty for what is no monitor. */
  readonly element = h("div", { class: "ddl-monitor" });
  private readonly parts: HTMLElement[];
  private readonly charts = h("div", { class: "ddl-monitor-charts" });
  private readonly body = h("tbody");
  private readonly shown = h("th", { scope: "col", class: "ddl-left", title: SHOWN }, "at training, now");
  private readonly facts = h("p", { class: "ddl-dim ddl-monitor-facts" });
  private readonly note = h("p", { class: "ddl-dim ddl-monitor-facts" });
  private readonly reasons = h("span");
  private readonly copy = copyButton("Copy the training cell", () => this.cell);
  private readonly advice: HTMLElement;
  private drawn: MonitorView | null = null;
  private cell = "";

  constructor() {
    const classes = ["ddl-left", undefined, undefined, undefined, "ddl-left ddl-minor"];
    const [first = "", ...titles] = Object.entries(TITLES).map(([text, title], i) =>
      h("th", { scope: "col", class: classes[i], title }, text),
    );
    const head = h("tr", {}, first, this.shown, ...titles);
    const table = h("table", { "aria-label": "inputs and outputs by drift" }, h("thead", {}, head), this.body);
    const chip = h("span", { class: "ddl-chip", "data-state": "FAILED" }, "TRAIN AGAIN");
    this.advice = h("div", { class: "ddl-monitor-advice", role: "status" }, chip, this.reasons, this.copy);
    this.parts = [this.charts, scrollBox("ddl-table", "drift", table), this.note, this.advice, this.facts];
    setVisible(this.element, false);
  }

  draw(view: MonitorView | null): void {
    setVisible(this.element, view !== null);
    if (!view || view === this.drawn) return;
    if (this.drawn === null) this.element.append(...this.parts);
    this.drawn = view;
    this.cell = view.cell;
    this.charts.replaceChildren(...charts(view));
    this.body.replaceChildren(...view.things.map((thing) => row(thing, view.severe)));
    setVisible(this.advice, view.reasons.length > 0);
    setText(this.reasons, view.reasons.join("; "));
    setNote(this.note, view.note);
    setText(this.facts, facts(view));
  }
}

function facts(view: MonitorView): string {
  const parts = [
    plural(view.requests, "request"),
    `drift in the last ${plural(view.rows, "row")}`,
    view.errors ? plural(view.errors, "error") : "",
    view.doubles ? `${number(view.doubles)} came twice` : "",
    view.late ? `${number(view.late)} too late` : "",
    view.unreadable ? `${number(view.unreadable)} unreadable` : "",
    view.hidden ? `${number(view.hidden)} further inputs have moved less` : "",
    view.log,
  ];
  return parts.filter(Boolean).join(" · ");
}

function charts(view: MonitorView): HTMLElement[] {
  const last = (values: Values) => number(values.at(-1));
  const inMs = (values: Values) => values.map((value) => (value === null ? null : value * MS));
  const latencies: [string, Values, number][] = [
    ["p50", inMs(view.p50), 2],
    ["p95", inMs(view.p95), 0],
    ["p99", inMs(view.p99), 1],
  ];
  const legend = latencies.map(([name, values, colour]) =>
    h("span", { style: `color: var(--ddl-c${colour})` }, `${name} ${last(values)} `),
  );
  const lines = latencies.map(([, values, colour]): [Values, number] => [values, colour]);
  const found = [
    chart("requests/s", [h("span", {}, last(view.rate))], [[view.rate, 0]]),
    chart("latency, ms", legend, lines),
  ];
  if (view.error) found.push(errorChart(view.error));
  return found;
}

function errorChart(error: MonitoredError): HTMLElement {
  const trained = error.before === null ? "" : `, trained at ${number(error.before)}`;
  const text = h("span", {}, `${number(error.mean)}${trained}`);
  return chart(`${error.name} with labels`, [text], [[error.values, 1]], error.before);
}

function chart(
  title: string,
  legend: HTMLElement[],
  lines: [Values, number][],
  level: number | null = null,
): HTMLElement {
  const known = lines.flatMap(([values]) => values).filter((value): value is number => value !== null);
  const most = Math.max(...known, level ?? 0, Number.MIN_VALUE) * 1.1;
  const y = (value: number) => HEIGHT - (value / most) * HEIGHT;
  const paths = lines.map(([values, colour]) => {
    const step = WIDTH / Math.max(1, values.length - 1);
    const points = values.map((value, i) => {
      if (value === null) return "";
      return `${i && values[i - 1] !== null ? "L" : "M"}${(i * step).toFixed(1)} ${y(value).toFixed(1)}`;
    });
    const d = points.join("");
    return s("path", { d: values.length === 1 ? `${d}h${WIDTH}` : d, style: `stroke: var(--ddl-c${colour})` });
  });
  const dashed = level === null ? [] : [s("line", { x1: 0, x2: WIDTH, y1: y(level), y2: y(level) })];
  const box = { viewBox: `0 0 ${WIDTH} ${HEIGHT + 2}`, preserveAspectRatio: "none", role: "img", "aria-label": title };
  return h(
    "section",
    {},
    h("h3", {}, title, h("span", { class: "ddl-monitor-legend" }, ...legend)),
    s("svg", box, ...dashed, ...paths),
  );
}

function row(thing: MonitoredThing, severe: number): HTMLTableRowElement {
  const name = thing.output ? `output: ${thing.name.replace(/^output(: )?/, "") || "prediction"}` : thing.name;
  const why =
    thing.threshold === null
      ? "too few rows to judge"
      : `a drift from ${number(thing.threshold)} on, severe from ${number(severe)} on; ` +
        (thing.threshold > 0.1 ? "so few rows can differ by less by chance" : "customary bounds");
  const since = thing.since === null ? "" : time(thing.since);
  return h(
    "tr",
    { "data-level": thing.level },
    h("td", { class: "ddl-left", title: name }, name),
    h("td", { class: "ddl-left" }, bins(thing)),
    h("td", { class: "ddl-monitor-psi", title: why }, thing.psi === null ? UNKNOWN : thing.psi.toFixed(2)),
    h("td", {}, thing.ks === null ? UNKNOWN : thing.ks.toFixed(2)),
    h("td", {}, percent(100 * thing.nulls)),
    h("td", { class: "ddl-left ddl-minor" }, since),
  );
}

function time(seconds: number): string {
  const isToday = date(seconds) === date(Date.now() / MS);
  return (isToday ? clock(seconds) : dateTime(seconds)).slice(0, -":00".length);
}

function bins({ before, now, name }: MonitoredThing): SVGSVGElement {
  const most = Math.max(...(before as number[]), ...(now as number[]), Number.MIN_VALUE);
  const width = BINS_WIDTH / Math.max(1, before.length);
  const y = (value: number | null) => BINS_HEIGHT - ((value ?? 0) / most) * BINS_HEIGHT;
  const bars = before.map((value, i) =>
    s("rect", { x: i * width, width: Math.max(1, width - 1), y: y(value), height: BINS_HEIGHT - y(value) }),
  );
  const d = now.map((value, i) => `${i ? "L" : "M"}${((i + 0.5) * width).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const label = `${name}: share of the rows in each bin at training, and now`;
  return s(
    "svg",
    { class: "ddl-monitor-bins", viewBox: `0 0 ${BINS_WIDTH} ${BINS_HEIGHT + 1}`, role: "img", "aria-label": label },
    ...bars,
    s("path", { d }),
  );
}
