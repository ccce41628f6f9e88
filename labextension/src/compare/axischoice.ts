/** Over what the lines are drawn: a group of radio buttons. */

import type { Translation } from "../translation";
import { h } from "../view/dom";
import { AXES, type Axis } from "./align";

let groups = 0;

/** Calls `chosen` with each choice; the first of the axes is chosen at first. */
export function axisChoice(trans: Translation, chosen: (axis: Axis) => void): HTMLElement {
  const titles: Record<Axis, string> = {
    step: trans.__("Steps"),
    time: trans.__("Time since training began"),
    epoch: trans.__("Epochs"),
  };
  const name = `ddl-axis-${groups++}`;
  const buttons = AXES.map((axis, i) => {
    const button = h("input", { type: "radio", name, value: axis, checked: i === 0 });
    button.addEventListener("change", () => button.checked && chosen(axis));
    return h("label", {}, button, titles[axis]);
  });
  return h("fieldset", { class: "ddl-axis" }, h("legend", {}, trans.__("Over")), ...buttons);
}
