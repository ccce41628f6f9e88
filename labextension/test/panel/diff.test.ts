// @vitest-environment jsdom
import { expect, test } from "vitest";
import { diffElement, diffWords, lineDiff } from "../../src/panel/diff";
import { english } from "../../src/translation";

const BEFORE = "model = build()\nmodel.compile('sgd')\nmodel.fit(x, y)\n";
const AFTER = "model = build()\nmodel.compile('adam')\nmodel.fit(x, y)\nprint('done')";

test("lines of both texts stand in one order, the removed before the added", () => {
  expect(lineDiff(BEFORE, AFTER)).toEqual([
    { change: "same", text: "model = build()" },
    { change: "removed", text: "model.compile('sgd')" },
    { change: "added", text: "model.compile('adam')" },
    { change: "same", text: "model.fit(x, y)" },
    { change: "added", text: "print('done')" },
  ]);
});

test("a newline at the end is no difference, an empty line is one", () => {
  expect(lineDiff("a", "a\n").every(({ change }) => change === "same")).toBe(true);
  expect(lineDiff("a\n\nb", "a\nb")).toContainEqual({ change: "removed", text: "" });
  expect(lineDiff("", "")).toEqual([]);
});

test("texts that have nothing in common are told apart without working it out", () => {
  const text = (word: string) => Array.from({ length: 3000 }, (_, i) => `${word} ${i}`).join("\n");
  const lines = lineDiff(text("a"), text("b"));
  expect(lines.slice(0, 3000).every(({ change }) => change === "removed")).toBe(true);
  expect(lines.slice(3000)).toHaveLength(3000);
});

test("the differences are counted in words", () => {
  expect(diffWords(lineDiff(BEFORE, AFTER), english)).toBe("1 line removed, 2 lines added");
  expect(diffWords(lineDiff("a", "a"), english)).toBe("no line differs");
});

test("a line is text with a sign, never markup", () => {
  const element = diffElement(lineDiff("a", "<b>a</b>"), "changes");
  expect([...element.querySelectorAll("[data-change]")].map((line) => line.textContent)).toEqual(["−a", "+<b>a</b>"]);
  expect(element.querySelector("b")).toBeNull();
});
