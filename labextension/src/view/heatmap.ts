/** The heat map of a large job: one tile per rank, coloured by how far the rank is behind the median. */

import { button, h, setAttribute, setText, setVisible } from "./dom";
import { focusOn, roving } from "./keys";
import { hasLeft, type RunModel, type Worker } from "./model";
import { SLOW, slower, verdict } from "./stragglers";

export class HeatMap {
  readonly element: HTMLElement;
  private readonly heading = h("p", { class: "ddl-dim" });
  private readonly tiles = h("div", { class: "ddl-tiles", role: "group", "aria-label": "ranks" });
  private readonly buttons = new Map<number, HTMLButtonElement>();

  /** @param onClick gets the rank whose tile was clicked */
  constructor(private readonly onClick: (rank: number) => void) {
    this.element = h("div", { class: "ddl-heat" }, this.heading, this.tiles);
    roving(this.tiles, () => getComputedStyle(this.tiles).gridTemplateColumns.split(" ").length);
  }

  /** @param ratios rank -> how many times slower than the median */
  draw(model: RunModel, workers: readonly Worker[], ratios: Map<number, number>, selected: number | null): void {
    setVisible(this.element, workers.length > 0);
    const measure = model.run?.strategy === "ps" ? "samples/s" : "compute time";
    const summary = verdict(ratios);
    setText(this.heading, `${measure} of each rank against the median${summary ? `; ${summary}` : ""}`);
    const failed = model.state?.failure?.rank;
    for (const worker of workers) {
      const { rank, host } = worker.info;
      const tile = this.tile(rank);
      const ratio = ratios.get(rank);
      const lag = slower(ratio);
      const state = rank === failed ? "failed" : hasLeft(worker) ? worker.info.state : lag;
      setAttribute(tile, "data-heat", rank === failed ? "bad" : heat(ratio));
      setAttribute(tile, "aria-pressed", String(rank === selected));
      setAttribute(tile, "aria-label", `rank ${rank}${state ? `, ${state}` : ""}`);
      setAttribute(tile, "title", [`rank ${rank} on ${host}`, state].filter(Boolean).join(": "));
      setText(tile, rank === failed ? `${rank} ✕` : lag ? `${rank} · ${ratio?.toFixed(1)}×` : String(rank));
    }
  }

  private tile(rank: number): HTMLButtonElement {
    const known = this.buttons.get(rank);
    if (known) return known;
    const tile = button("", () => {
      focusOn([...this.buttons.values()], [...this.buttons.keys()].indexOf(rank));
      this.onClick(rank);
    });
    this.buttons.set(rank, tile);
    const tiles = [...this.buttons].sort(([a], [b]) => a - b).map(([, button]) => button);
    this.tiles.replaceChildren(...tiles);
    focusOn(tiles, 0);
    return tile;
  }
}

/** The step of the colour scale in view.css for a ratio to the median. */
export function heat(ratio: number | undefined): "none" | "good" | "fair" | "near" | "bad" {
  if (ratio === undefined || !Number.isFinite(ratio)) return "none";
  if (ratio >= SLOW) return "bad";
  return ratio >= 1.1 ? "near" : ratio >= 1.03 ? "fair" : "good";
}
