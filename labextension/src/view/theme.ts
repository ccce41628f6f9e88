/** The colours of the page around the view, as canvas needs them, and whether that page is dark. */

import { onPreference, preferences } from "./preferences";

export interface Palette {
  text: string;
  dim: string;
  grid: string;
  lines: string[];
}

/** Number of line colours in view.css. */
const LINES = 8;

/** The colours that view.css resolves to for `root` just now. */
export function palette(root: HTMLElement): Palette {
  // A canvas takes no var() and not everywhere color-mix(): an element resolves them to plain colours.
  const probe = root.appendChild(document.createElement("span"));
  const colour = (name: string) => {
    probe.style.color = `var(--ddl-${name})`;
    return getComputedStyle(probe).color;
  };
  const series = preferences().series === "colour-blind" ? "b" : "c";
  const found = {
    text: colour("fg"),
    dim: colour("dim"),
    grid: colour("line"),
    lines: Array.from({ length: LINES }, (_, i) => colour(`${series}${i}`)),
  };
  probe.remove();
  return found;
}

/** Whether light text stands on a dark ground here: Jupyter says so on the body, elsewhere the browser's wish counts. */
export function isDark(): boolean {
  const said = document.body.dataset.jpThemeLight;
  if (said !== undefined) return said === "false";
  return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ?? false;
}

/** Calls back when the page changes its theme, or the reader the charts' colours; returns how to stop. */
export function onThemeChange(changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  const wish = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  wish?.addEventListener("change", changed);
  const stop = onPreference(changed);
  return () => {
    stop();
    observer.disconnect();
    wish?.removeEventListener("change", changed);
  };
}
