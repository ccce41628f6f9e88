/** The colours of the page's theme for the canvas, and whether the theme is dark. */

import { onPreferencesChange, preferences } from "./preferences";

export interface Palette {
  text: string;
  dim: string;
  grid: string;
  lines: string[];
}

/** Number of line colours in view.css. */
const LINES = 8;

/** The current colours of view.css below `root`. */
export function palette(root: HTMLElement): Palette {
  // A canvas does not know var() and not always color-mix(): an element resolves them.
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

/** A colour of the palette for an area behind lines. */
export function translucent(colour: string): string {
  return colour.replace(/^rgb\((.*)\)$/, "rgba($1, 0.15)");
}

/** Whether the theme is dark: as Jupyter says on the body, else as the browser prefers. */
export function isDark(): boolean {
  const light = document.body.dataset.jpThemeLight;
  if (light !== undefined) return light === "false";
  return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ?? false;
}

/** Calls `listener` when the theme or the colours of the charts change; returns a function that removes it. */
export function onThemeChange(listener: () => void): () => void {
  const observer = new MutationObserver(listener);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  const scheme = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  scheme?.addEventListener("change", listener);
  const removeListener = onPreferencesChange(listener);
  return () => {
    removeListener();
    observer.disconnect();
    scheme?.removeEventListener("change", listener);
  };
}
