/** Radio buttons for the x axis of the charts. */

import type { Translation } from "../translation";
import { h } from "../view/dom";
import { AXES, type Axis } from "./align";

let groups = 0;

/** Calls `onSelect` with each selection; at first, the first axis is selected. */
export function axisSelector(trans: Translation, onSelect: (axis: Axis) => void): HTMLElement {
  const titles: Record<Axis, string> = {
    step: trans.__("Steps"),
    sample: trans.__("Samples"),
    time: trans.__("Time since training began"),
    epoch: trans.__("Epochs"),
  };
  const name = `ddl-axis-${groups++}`;
  const buttons = AXES.map((axis, i) => {
    const button = h("input", { type: "radio", name, value: axis, checked: i === 0 });
    button.addEventListener("change", () => button.checked && onSelect(axis));
    return h("label", {}, button, titles[axis]);
  });
  return h("fieldset", { class: "ddl-axis" }, h("legend", {}, trans.__("X axis")), ...buttons);
}
