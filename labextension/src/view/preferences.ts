/** The reader's preferences for all charts of the page: JupyterLab's settings, or the defaults outside of it. */

import type { SettingValues } from "../generated";

export type Preferences = Readonly<Pick<SettingValues, "maxPoints" | "series">>;

let current: Preferences = { maxPoints: Number.POSITIVE_INFINITY, series: "default" };
const listeners = new Set<() => void>();

export function preferences(): Preferences {
  return current;
}

/** Changes the preferences, also of charts that are already drawn. */
export function setPreferences({ maxPoints, series }: Preferences): void {
  current = { maxPoints, series };
  for (const listener of listeners) listener();
}

/** Calls `listener` after each change; returns a function that removes it. */
export function onPreferencesChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
