/** Parallel coordinates: a vertical axis for each parameter and for the objective, a line for each trial. */

import { h, s, setAttribute, setAttributes, setText } from "../view/dom";
import type { SearchModel } from "./model";
import { type Brush, objectiveScale, parameterScale, type Scale } from "./scales";
import { type Emphasis, Layers, polyline } from "./svg";

const HEIGHT = 168;
const MARGIN = { top: 24, side: 46, bottom: 20 };
const DEFAULT_WIDTH = 560;
/** Half of the width of the area along an axis that takes the pointer. */
const REACH = 12;
/** A brush that is shorter than this, as after a click, is none. */
const LEAST = 0.02;
/** How far an arrow key moves an end of a brush. */
const KEY_STEP = 0.05;
/** Longer names are cut: the tooltip has all of them. */
const MAX_NAME = 14;

/** The ends of an axis that keys move. */
const ENDS = ["lower", "upper"] as const;

interface Axis {
  scale: Scale;
  element: SVGGElement;
  line: SVGLineElement;
  name: SVGTextElement;
  top: SVGTextElement;
  bottom: SVGTextElement;
  area: SVGRectElement;
  brush: SVGRectElement;
  handles: SVGRectElement[];
}

export class Parallel {
  readonly element: HTMLElement;
  /** The chosen parts of the axes, by name. */
  readonly brushes = new Map<string, Brush>();
  scales: Scale[] = [];
  private readonly remark = h("span", { class: "ddl-values ddl-dim" });
  private readonly layers = new Layers();
  private readonly svg = s("svg", { role: "group", height: HEIGHT }, this.layers.element);
  private axes: Axis[] = [];

  constructor(private readonly onBrush: () => void) {
    const head = h("div", { class: "ddl-heading" }, h("h3", {}, "parameters"), this.remark);
    this.element = h("section", { class: "ddl-chart ddl-parallel" }, head, this.svg);
  }

  /** Takes the scales of a model, which `scales` has from now on. */
  update(model: SearchModel): void {
    if (!model.info) return;
    const trials = [...model.trials.values()];
    const others = model.info.others.map((name, i) => objectiveScale(name, trials, ({ others }) => others[i] ?? null));
    this.scales = [...model.info.axes.map(parameterScale), objectiveScale(model.info.metric, trials), ...others];
  }

  draw(model: SearchModel, emphasis: Emphasis): void {
    if (this.axes.length !== this.scales.length) this.make();
    const width = this.svg.clientWidth || DEFAULT_WIDTH;
    const last = Math.max(1, this.scales.length - 1);
    const x = (index: number) => MARGIN.side + (index / last) * (width - 2 * MARGIN.side);
    this.axes.forEach((axis, index) => {
      axis.scale = this.scales[index] ?? axis.scale;
      place(axis, x(index), this.brushes.get(axis.scale.name));
    });
    this.layers.draw(model.trials.values(), emphasis, (trial) =>
      polyline(
        this.scales.flatMap((scale, index): [number, number][] => {
          const at = scale.position(scale.of(trial));
          return at === null ? [] : [[x(index), y(at)]];
        }),
      ),
    );
    const chosen = [...model.trials.values()].filter(emphasis.isChosen).length;
    const text = `${chosen} of ${model.trials.size} trials chosen`;
    setText(this.remark, this.brushes.size ? text : "drag along an axis to choose");
    setAttribute(this.svg, "aria-label", `parameters and ${model.info?.metric} of the trials; ${text}`);
  }

  private make(): void {
    this.axes = this.scales.map((scale) => this.makeAxis(scale));
    this.svg.replaceChildren(this.layers.element, ...this.axes.map(({ element }) => element));
  }

  private makeAxis(scale: Scale): Axis {
    const text = () => s("text", { "text-anchor": "middle" });
    const handles = ENDS.map((end) =>
      s("rect", {
        class: "ddl-handle",
        tabindex: 0,
        role: "slider",
        "aria-orientation": "vertical",
        "aria-label": `${end} end of the chosen part of ${scale.name}`,
        "aria-valuemin": 0,
        "aria-valuemax": 100,
      }),
    );
    const axis: Axis = {
      scale,
      element: s("g", { class: "ddl-axis" }),
      line: s("line"),
      name: text(),
      top: text(),
      bottom: text(),
      area: s("rect", { class: "ddl-brush-area" }),
      brush: s("rect", { class: "ddl-brush" }),
      handles,
    };
    const cut = scale.name.length > MAX_NAME ? `${scale.name.slice(0, MAX_NAME - 1)}…` : scale.name;
    axis.name.append(cut, s("title", {}, scale.name));
    axis.element.append(axis.line, axis.name, axis.top, axis.bottom, axis.brush, axis.area, ...handles);
    axis.area.addEventListener("pointerdown", (event) => this.drag(axis, event));
    handles.forEach((handle, end) => {
      handle.addEventListener("keydown", (event) => this.press(axis, end, event));
    });
    return axis;
  }

  private drag(axis: Axis, event: PointerEvent): void {
    event.preventDefault();
    axis.area.setPointerCapture(event.pointerId);
    const at = ({ clientY }: PointerEvent) => position(clientY - this.svg.getBoundingClientRect().top);
    const from = at(event);
    const move = (moved: PointerEvent) => {
      const to = at(moved);
      this.choose(axis, [Math.min(from, to), Math.max(from, to)], LEAST);
    };
    move(event);
    axis.area.addEventListener("pointermove", move);
    const end = () => axis.area.removeEventListener("pointermove", move);
    axis.area.addEventListener("pointerup", end, { once: true });
    axis.area.addEventListener("pointercancel", end, { once: true });
  }

  private press(axis: Axis, end: number, event: KeyboardEvent): void {
    const [low, high] = this.brushes.get(axis.scale.name) ?? [0, 1];
    const change = { ArrowUp: KEY_STEP, ArrowDown: -KEY_STEP }[event.key];
    if (change === undefined && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    const by = change ?? 0;
    const moved: Brush = end === 0 ? [clamp(low + by, 0, high), high] : [low, clamp(high + by, low, 1)];
    this.choose(axis, event.key === "Escape" ? [0, 1] : moved, 0);
  }

  /** Chooses a part of an axis; all of it, or less than `least`, is no choice. */
  private choose(axis: Axis, [low, high]: Brush, least: number): void {
    const none = high - low < least || (low <= 0 && high >= 1);
    if (none) this.brushes.delete(axis.scale.name);
    else this.brushes.set(axis.scale.name, [low, high]);
    this.onBrush();
  }
}

function place({ scale, line, name, top, bottom, area, brush, handles }: Axis, x: number, chosen: Brush | undefined) {
  const [low, high] = chosen ?? [0, 1];
  setAttributes(line, { x1: x, x2: x, y1: y(0), y2: y(1) });
  setAttributes(name, { x, y: 9 });
  setAttributes(top, { x, y: 20 });
  setAttributes(bottom, { x, y: HEIGHT - 6 });
  setText(top, scale.label(1));
  setText(bottom, scale.label(0));
  setAttributes(area, { x: x - REACH, y: y(1), width: 2 * REACH, height: y(0) - y(1) });
  setAttributes(brush, { x: x - 5, y: y(high), width: 10, height: chosen ? y(low) - y(high) : 0 });
  handles.forEach((handle, end) => {
    const at = end === 0 ? low : high;
    setAttributes(handle, { x: x - 7, y: y(at) - 2, width: 14, height: 4 });
    setAttributes(handle, { "aria-valuenow": Math.round(100 * at), "aria-valuetext": scale.label(at) });
  });
}

function y(position: number): number {
  return HEIGHT - MARGIN.bottom - position * (HEIGHT - MARGIN.bottom - MARGIN.top);
}

function position(pixels: number): number {
  return clamp((y(0) - pixels) / (y(0) - y(1)), 0, 1);
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}
