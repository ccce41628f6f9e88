/** What a reader wants of all charts of this page. JupyterLab's settings say it; elsewhere the defaults hold. */

export interface Preferences {
  /** The most points that a line is drawn with. */
  readonly maxPoints: number;
  /** Which colours lines have. */
  readonly series: "default" | "colour-blind";
}

let preferred: Preferences = { maxPoints: Number.POSITIVE_INFINITY, series: "default" };
const listeners = new Set<() => void>();

export function preferences(): Preferences {
  return preferred;
}

/** From now on, also for charts that are there. */
export function prefer({ maxPoints, series }: Preferences): void {
  preferred = { maxPoints, series };
  for (const listener of listeners) listener();
}

/** Calls back when they are others; returns how to stop. */
export function onPreference(changed: () => void): () => void {
  listeners.add(changed);
  return () => listeners.delete(changed);
}
