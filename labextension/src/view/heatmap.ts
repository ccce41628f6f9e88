/** Many ranks at a glance: a tile each, coloured by how far it is behind the median. */

import { attribute, h, show, text } from "./dom";
import { focusOn, roving } from "./keys";
import type { RunModel, Worker } from "./model";
import { SLOW, slower, verdict } from "./stragglers";

export class HeatMap {
  readonly element: HTMLElement;
  private readonly heading = h("p", { class: "ddl-dim" });
  private readonly tiles = h("div", { class: "ddl-tiles", role: "group", "aria-label": "ranks" });
  private readonly buttons = new Map<number, HTMLButtonElement>();

  /** `onChoose` gets the rank whose tile was clicked. */
  constructor(private readonly onChoose: (rank: number) => void) {
    this.element = h("div", { class: "ddl-heat" }, this.heading, this.tiles);
    roving(this.tiles, () => getComputedStyle(this.tiles).gridTemplateColumns.split(" ").length);
  }

  draw(model: RunModel, workers: readonly Worker[], ratios: Map<number, number>, chosen: number | null): void {
    show(this.element, workers.length > 0);
    const measure = model.run?.strategy === "ps" ? "samples/s" : "compute time";
    const words = verdict(ratios);
    text(this.heading, `${measure} of each rank against the median${words ? `; ${words}` : ""}`);
    const failed = model.state?.failure?.rank;
    for (const { facts } of workers) {
      const tile = this.tile(facts.rank);
      const ratio = ratios.get(facts.rank);
      const lag = slower(ratio);
      const state = facts.rank === failed ? "failed" : lag;
      attribute(tile, "data-heat", facts.rank === failed ? "bad" : heat(ratio));
      attribute(tile, "aria-pressed", String(facts.rank === chosen));
      attribute(tile, "aria-label", `rank ${facts.rank}${state ? `, ${state}` : ""}`);
      attribute(tile, "title", [`rank ${facts.rank} on ${facts.host}`, state].filter(Boolean).join(": "));
      text(
        tile,
        facts.rank === failed ? `${facts.rank} ✕` : lag ? `${facts.rank} · ${ratio?.toFixed(1)}×` : String(facts.rank),
      );
    }
  }

  private tile(rank: number): HTMLButtonElement {
    const known = this.buttons.get(rank);
    if (known) return known;
    const tile = h("button", { type: "button" });
    tile.addEventListener("click", () => {
      focusOn([...this.buttons.values()], [...this.buttons.keys()].indexOf(rank));
      this.onChoose(rank);
    });
    this.buttons.set(rank, tile);
    const ranks = [...this.buttons.keys()].sort((a, b) => a - b);
    this.tiles.replaceChildren(...ranks.map((other) => this.buttons.get(other) as HTMLButtonElement));
    focusOn([...this.tiles.querySelectorAll("button")], 0);
    return tile;
  }
}

/** A step of the scale: from "good" to "bad", in words that view.css colours. */
export function heat(ratio: number | undefined): "none" | "good" | "fair" | "near" | "bad" {
  if (ratio === undefined || !Number.isFinite(ratio)) return "none";
  if (ratio >= SLOW) return "bad";
  return ratio >= 1.1 ? "near" : ratio >= 1.03 ? "fair" : "good";
}
