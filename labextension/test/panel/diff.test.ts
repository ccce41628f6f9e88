// @vitest-environment jsdom
import { expect, test } from "vitest";
import { diffElement, diffSummary, lineDiff } from "../../src/panel/diff";
import { english } from "../../src/translation";

const BEFORE = "model = build()\nmodel.compile('sgd')\nmodel.fit(x, y)\n";
const AFTER = "model = build()\nmodel.compile('adam')\nmodel.fit(x, y)\nprint('done')";

test("the lines are in one order, removed ones before added ones", () => {
  expect(lineDiff(BEFORE, AFTER)).toEqual([
    { change: "same", text: "model = build()" },
    { change: "removed", text: "model.compile('sgd')" },
    { change: "added", text: "model.compile('adam')" },
    { change: "same", text: "model.fit(x, y)" },
    { change: "added", text: "print('done')" },
  ]);
});

test("a newline at the end makes no difference, an empty line does", () => {
  expect(lineDiff("a", "a\n").every(({ change }) => change === "same")).toBe(true);
  expect(lineDiff("a\n\nb", "a\nb")).toContainEqual({ change: "removed", text: "" });
  expect(lineDiff("", "")).toEqual([]);
});

test("texts with too many edits are removed and added as a whole", () => {
  const text = (word: string) => Array.from({ length: 3000 }, (_, i) => `${word} ${i}`).join("\n");
  const lines = lineDiff(text("a"), text("b"));
  expect(lines.slice(0, 3000).every(({ change }) => change === "removed")).toBe(true);
  expect(lines.slice(3000)).toHaveLength(3000);
});

test("the summary counts the lines", () => {
  expect(diffSummary(lineDiff(BEFORE, AFTER), english)).toBe("1 line removed, 2 lines added");
  expect(diffSummary(lineDiff("a", "a"), english)).toBe("no differences");
});

test("a line is text with a sign, never markup", () => {
  const element = diffElement(lineDiff("a", "<b>a</b>"), "changes");
  expect([...element.querySelectorAll("[data-change]")].map((line) => line.textContent)).toEqual(["−a", "+<b>a</b>"]);
  expect(element.querySelector("b")).toBeNull();
});
