/** The buttons of a run's page. */

import { button } from "../view/dom";

export function pageButton(text: string, onClick: () => unknown, title?: string): HTMLButtonElement {
  return button(text, onClick, { class: "ddl-runpage-button", title });
}
