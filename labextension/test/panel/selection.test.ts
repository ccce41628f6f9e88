import { expect, test } from "vitest";
import { Selection } from "../../src/panel/selection";

const IDS = ["a", "b", "c", "d", "e"];
const PLAIN = { shift: false, toggle: false };
const SHIFT = { shift: true, toggle: false };
const TOGGLE = { shift: false, toggle: true };

/** The selection after keys: "S-" with Shift, "C-" with Control. */
function after(selection: Selection, ...keys: string[]): string {
  for (const key of keys) {
    const modifiers = { shift: key.startsWith("S-"), toggle: key.startsWith("C-") };
    selection.onKey(IDS, key.replace(/^[SC]-/, ""), 3, modifiers);
  }
  return selection.of(IDS).join("");
}

test.each([
  [["ArrowDown"], "a"],
  [["ArrowDown", "ArrowDown", "ArrowDown"], "c"],
  [["End"], "e"],
  [["End", "ArrowDown"], "e"],
  [["End", "Home"], "a"],
  [["Home", "PageDown"], "d"],
  [["End", "PageUp"], "b"],
  [["Home", "S-ArrowDown", "S-ArrowDown"], "abc"],
  [["Home", "S-ArrowDown", "S-ArrowDown", "S-ArrowUp"], "ab"],
  [["Home", "C-ArrowDown", "C-ArrowDown", " "], "ac"],
  [["Home", "C-ArrowDown", " ", " "], "a"],
  [["C-a"], "abcde"],
])("%s selects %s", (keys, selected) => expect(after(new Selection(), ...keys)).toBe(selected));

test("other keys are not handled", () => {
  expect(new Selection().onKey(IDS, "x", 3, PLAIN)).toBe(false);
  expect(new Selection().onKey(IDS, " ", 3, PLAIN)).toBe(false);
});

test("clicks and context menus", () => {
  const selection = new Selection();
  selection.onClick(IDS, "b", PLAIN);
  selection.onClick(IDS, "d", SHIFT);
  expect(selection.of(IDS)).toEqual(["b", "c", "d"]);
  selection.onClick(IDS, "c", TOGGLE);
  expect(selection.of(IDS)).toEqual(["b", "d"]);
  selection.onContextMenu("d");
  expect(selection.of(IDS)).toEqual(["b", "d"]);
  selection.onContextMenu("e");
  expect(selection.of(IDS)).toEqual(["e"]);
});

test("a row that is not listed is not selected", () => {
  const selection = new Selection();
  selection.onKey(IDS, "a", 3, TOGGLE);
  expect(selection.of(["b", "x"])).toEqual(["b"]);
});
