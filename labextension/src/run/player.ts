/** The controls of a replay: play and pause, position, speed. */

import type { Translation } from "../translation";
import { button, h, setAttribute, setAttributes, setText } from "../view/dom";
import { duration } from "../view/format";

export const SPEEDS = [1, 4, 16, 64];

/** Interval of the frames; longer for readers who prefer reduced motion. */
const FRAME_MS = 100;
const REDUCED_MOTION_FRAME_MS = 2000;

/** Number of steps of the slider, by which the arrow keys move. */
const SLIDER_STEPS = 200;

export class Player {
  readonly element: HTMLElement;
  private readonly play: HTMLButtonElement;
  private readonly slider = h("input", { type: "range" });
  private readonly speed: HTMLSelectElement;
  private readonly clock = h("span", { class: "ddl-runpage-clock" });
  private begin = 0;
  private end = 0;
  private timer: ReturnType<typeof setInterval> | null = null;
  /** When the last frame was drawn, in milliseconds. */
  private lastFrame = 0;
  private position = 0;

  /** @param onSeek gets the position in seconds since the run was created; null: the end */
  constructor(
    private readonly trans: Translation,
    private readonly onSeek: (seconds: number | null) => void,
  ) {
    this.play = button("", () => this.toggle(), { class: "ddl-runpage-button ddl-runpage-play" });
    setAttribute(this.slider, "aria-label", trans.__("Time in the run"));
    this.slider.addEventListener("input", () => this.seek(Number(this.slider.value)));
    this.slider.addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      this.toggle();
    });
    this.speed = h("select", { "aria-label": trans.__("Speed of the replay") });
    this.speed.append(...SPEEDS.map((value) => h("option", { value }, trans.__("%1×", value))));
    this.speed.value = "16";
    const label = trans.__("Replay");
    const parts = [this.play, this.slider, this.clock, this.speed];
    this.element = h("div", { class: "ddl-runpage-player", role: "group", "aria-label": label }, ...parts);
    this.draw();
  }

  /** Sets where the replay begins and ends, in seconds since the run was created. */
  setSpan([begin, end]: readonly [number, number]): void {
    if (begin === this.begin && end === this.end) return;
    [this.begin, this.end] = [begin, end];
    setAttributes(this.slider, { min: begin, max: end, step: (end - begin) / SLIDER_STEPS });
    this.seek(end);
  }

  pause(): void {
    if (this.timer) clearInterval(this.timer);
    this.timer = null;
    this.draw();
  }

  private toggle(): void {
    if (this.timer) this.pause();
    else this.start();
  }

  private start(): void {
    if (this.position >= this.end) this.seek(this.begin);
    this.lastFrame = Date.now();
    const reduced = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches;
    const interval = reduced ? REDUCED_MOTION_FRAME_MS : FRAME_MS;
    this.timer = setInterval(() => this.advance(), interval);
    this.draw();
  }

  private advance(): void {
    const passed = (Date.now() - this.lastFrame) / 1000;
    this.lastFrame += passed * 1000;
    this.seek(this.position + passed * Number(this.speed.value));
    if (this.position >= this.end) this.pause();
  }

  private seek(seconds: number): void {
    this.position = Math.min(Math.max(seconds, this.begin), this.end);
    this.draw();
    this.onSeek(this.position >= this.end ? null : this.position);
  }

  private draw(): void {
    const { trans, position, begin, end } = this;
    setText(this.play, this.timer ? trans.__("Pause") : trans.__("Replay"));
    this.slider.value = String(position);
    const text = trans.__("%1 of %2", duration(position - begin), duration(end - begin));
    setAttribute(this.slider, "aria-valuetext", text);
    setText(this.clock, text);
  }
}
