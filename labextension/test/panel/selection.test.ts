import { expect, test } from "vitest";
import { Selection } from "../../src/panel/selection";

const IDS = ["a", "b", "c", "d", "e"];
const PLAIN = { shift: false, toggle: false };
const SHIFT = { shift: true, toggle: false };
const TOGGLE = { shift: false, toggle: true };

/** What is chosen after keys: "S-" with Shift, "C-" with Control. */
function after(selection: Selection, ...keys: string[]): string {
  for (const key of keys) {
    const held = { shift: key.startsWith("S-"), toggle: key.startsWith("C-") };
    selection.press(IDS, key.replace(/^[SC]-/, ""), 3, held);
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
])("%s chooses %s", (keys, chosen) => expect(after(new Selection(), ...keys)).toBe(chosen));

test("other keys are left to the page", () => {
  expect(new Selection().press(IDS, "x", 3, PLAIN)).toBe(false);
  expect(new Selection().press(IDS, " ", 3, PLAIN)).toBe(false);
});

test("the mouse", () => {
  const selection = new Selection();
  selection.click(IDS, "b", PLAIN);
  selection.click(IDS, "d", SHIFT);
  expect(selection.of(IDS)).toEqual(["b", "c", "d"]);
  selection.click(IDS, "c", TOGGLE);
  expect(selection.of(IDS)).toEqual(["b", "d"]);
  selection.point("d");
  expect(selection.of(IDS)).toEqual(["b", "d"]);
  selection.point("e");
  expect(selection.of(IDS)).toEqual(["e"]);
});

test("what is not shown is not chosen", () => {
  const selection = new Selection();
  selection.press(IDS, "a", 3, TOGGLE);
  expect(selection.of(["b", "x"])).toEqual(["b"]);
});
