/** What the reader has set in the settings editor; schema/runs.json says what there is. */

import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { Settings } from "../actions";

export class RunSettings implements Settings {
  pollSeconds = 2;
  maxPoints = 300;
  series: Settings["series"] = "default";
  /** Whether the end of a run is told. */
  notifyAtEnd = true;
  private readonly listeners = new Set<() => void>();

  changed(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Takes what is set, now and whenever it changes. */
  follow(settings: ISettingRegistry.ISettings): void {
    const take = () => {
      const { pollSeconds, maxPoints, series, notifyAtEnd } = settings.composite;
      this.pollSeconds = pollSeconds as number;
      this.maxPoints = maxPoints as number;
      this.series = series as Settings["series"];
      this.notifyAtEnd = notifyAtEnd as boolean;
      for (const listener of this.listeners) listener();
    };
    settings.changed.connect(take);
    take();
  }
}
