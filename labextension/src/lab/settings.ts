/** The settings of schema/runs.json, as the reader has set them. */

import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { Settings } from "../actions";
import { DEFAULT_SETTINGS, type SettingValues } from "../generated";

export class RunSettings implements Settings {
  private values = DEFAULT_SETTINGS;
  private readonly listeners = new Set<() => void>();

  get pollSeconds(): number {
    return this.values.pollSeconds;
  }

  get maxPoints(): number {
    return this.values.maxPoints;
  }

  get series(): SettingValues["series"] {
    return this.values.series;
  }

  get notifyAtEnd(): boolean {
    return this.values.notifyAtEnd;
  }

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Takes the values of the registry, which has validated them, now and after each change. */
  follow(settings: ISettingRegistry.ISettings): void {
    const update = () => {
      this.values = { ...DEFAULT_SETTINGS, ...settings.composite };
      for (const listener of this.listeners) listener();
    };
    settings.changed.connect(update);
    update();
  }
}
