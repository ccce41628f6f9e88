/** The buttons of a run's page. */

import { h } from "../view/dom";

export function button(words: string, act: () => unknown, title = ""): HTMLButtonElement {
  const made = h("button", { type: "button", class: "ddl-runpage-button", title: title || undefined }, words);
  made.addEventListener("click", () => void act());
  return made;
}
