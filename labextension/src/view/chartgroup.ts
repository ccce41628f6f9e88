/** Charts in a grid, which fit its width. */

import type { Chart } from "./chart";
import { h } from "./dom";

export abstract class ChartGroup {
  readonly element = h("div", { class: "ddl-charts" });
  private readonly observer = new ResizeObserver(() => this.resize());

  constructor() {
    this.observer.observe(this.element);
  }

  /** Redraws after the palette has changed. */
  recolour(): void {
    for (const chart of this.charts.values()) chart.recolour();
  }

  destroy(): void {
    this.observer.disconnect();
    for (const chart of this.charts.values()) chart.destroy();
  }

  protected abstract readonly charts: Chart[] | Map<string, Chart>;

  protected resize(): void {
    for (const chart of this.charts.values()) chart.resize();
  }
}
