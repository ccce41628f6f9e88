import { expect, test } from "vitest";
import { points } from "../../src/panel/sparkline";
import { place, progress, spoken, title, when } from "../../src/panel/words";
import { english } from "../../src/translation";
import { finished, run, unreadable } from "./rows";

test.each([
  [run("r1"), "42 % · 2:13 left"],
  [run("r1", { fraction: null, remaining: null }), "epoch 3"],
  [run("r1", { fraction: null, remaining: null, heard: null, state: "QUEUED" }), ""],
  [finished("r1"), "5 of 5 epochs"],
  [finished("r1", { epochs: null }), ""],
  [finished("r1", { state: "FAILED", failure: "ValueError: no" }), "ValueError: no"],
])("how far it is", (row, words) => expect(progress(row, english)).toBe(words));

test("a title stands for the name", () => {
  expect(title(run("r1"))).toBe("digits");
  expect(title(run("r1", { title: "The best" }))).toBe("The best");
  expect(title(unreadable("r1"))).toBe("r1");
});

test("the whole row can be heard", () => {
  expect(spoken(run("r1", { labels: ["best"] }), english)).toBe(
    "digits, running, 42 % · 2:13 left, loss 0.130, 4 workers, this machine · a.ipynb, best",
  );
  expect(spoken(unreadable("r1"), english)).toBe("r1, cannot be read: run.json is damaged");
});

test("a notebook is known by its name", () => {
  expect(place(run("r1"))).toBe("this machine · a.ipynb");
  expect(place(run("r1", { notebook: "" }))).toBe("this machine");
});

test("today has a time, another day a date", () => {
  const now = new Date(2026, 10, 21, 12);
  const at = (...date: [number, number, number, number]) => when(new Date(...date).getTime() / 1000, now, "en-GB");
  expect([at(2026, 10, 21, 9), at(2026, 10, 20, 9), at(2025, 0, 2, 9)]).toEqual(["09:00", "20 Nov", "2 Jan 2025"]);
});

test("a sparkline goes from side to side and from top to bottom", () => {
  expect(points([3, 2, 1])).toBe("1.0,1.0 32.0,8.0 63.0,15.0");
  expect(points([2, 2])).toBe("1.0,15.0 63.0,15.0");
  expect([points([]), points([1])]).toEqual(["", ""]);
});
