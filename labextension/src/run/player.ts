/** The controls of a replay: play, speed, and where it is. */

import type { Translation } from "../translation";
import { attribute, h, text } from "../view/dom";
import { duration } from "../view/format";

export const SPEEDS = [1, 4, 16, 64];

/** How often it moves while it plays; whoever wants less motion sees a still picture every other second. */
const FRAME_MS = 100;
const STILL_MS = 2000;

/** Parts of the run that the arrow keys go by. */
const NOTCHES = 200;

export class Player {
  readonly element: HTMLElement;
  private readonly play: HTMLButtonElement;
  private readonly slider = h("input", { type: "range" });
  private readonly speed: HTMLSelectElement;
  private readonly clock = h("span", { class: "ddl-runpage-clock" });
  private begin = 0;
  private end = 0;
  private timer: ReturnType<typeof setInterval> | null = null;
  private before = 0;
  private now = 0;

  /** `moved` gets the moment that is to be shown, in seconds since the run was created; null: its end, the whole run. */
  constructor(
    private readonly trans: Translation,
    private readonly moved: (seconds: number | null) => void,
  ) {
    this.play = h("button", { type: "button", class: "ddl-runpage-button ddl-runpage-play" });
    this.play.addEventListener("click", () => this.toggle());
    attribute(this.slider, "aria-label", trans.__("Time in the run"));
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

  /** From where to where there is something to play. */
  set([begin, end]: [number, number]): void {
    if (begin === this.begin && end === this.end) return;
    [this.begin, this.end] = [begin, end];
    attribute(this.slider, "min", begin);
    attribute(this.slider, "max", end);
    attribute(this.slider, "step", (end - begin) / NOTCHES);
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
    if (this.now >= this.end) this.seek(this.begin);
    this.before = Date.now();
    this.timer = setInterval(() => this.advance(), wantsStillness() ? STILL_MS : FRAME_MS);
    this.draw();
  }

  private advance(): void {
    const passed = (Date.now() - this.before) / 1000;
    this.before += passed * 1000;
    this.seek(this.now + passed * Number(this.speed.value));
    if (this.now >= this.end) this.pause();
  }

  private seek(seconds: number): void {
    this.now = Math.min(Math.max(seconds, this.begin), this.end);
    this.draw();
    this.moved(this.now >= this.end ? null : this.now);
  }

  private draw(): void {
    const { trans, now, begin, end } = this;
    text(this.play, this.timer ? trans.__("Pause") : trans.__("Replay"));
    this.slider.value = String(now);
    const words = trans.__("%1 of %2", duration(now - begin), duration(end - begin));
    attribute(this.slider, "aria-valuetext", words);
    text(this.clock, words);
  }
}

function wantsStillness(): boolean {
  return globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
}
