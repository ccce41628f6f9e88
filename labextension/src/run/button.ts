/** The buttons of a run's page. */

import { h } from "../view/dom";

export function button(text: string, onClick: () => unknown, title?: string): HTMLButtonElement {
  const element = h("button", { type: "button", class: "ddl-runpage-button", title }, text);
  element.addEventListener("click", () => void onClick());
  return element;
}
