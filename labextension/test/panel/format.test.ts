import { expect, test } from "vitest";
import { dateOrTime, location, progress, rowLabel, size, title } from "../../src/panel/format";
import { points } from "../../src/panel/sparkline";
import { english } from "../../src/translation";
import { finished, run, unreadable } from "./rows";

test.each([
  [run("r1"), "42 % · 2:13 left"],
  [run("r1", { fraction: null, remaining: null }), "epoch 3"],
  [run("r1", { fraction: null, remaining: null, last_seen: null, state: "QUEUED" }), ""],
  [run("r1", { fraction: null, state: "QUEUED", message: "waits for 2 slots" }), "waits for 2 slots"],
  [run("r1", { message: "training on 2 workers" }), "42 % · 2:13 left"],
  [finished("r1", { state: "LOST", message: "its kernel has ended" }), "its kernel has ended"],
  [finished("r1", { state: "STOPPED", message: "stopped after its step" }), "5 of 5 epochs"],
  [finished("r1"), "5 of 5 epochs"],
  [finished("r1", { epochs: null }), ""],
  [finished("r1", { state: "FAILED", failure: "ValueError: no" }), "ValueError: no"],
  // The model is fetched, or another fit follows: nothing is known of that.
  [run("r1", { fraction: 1, remaining: 0, epoch: 5 }), "5 of 5 epochs"],
])("the progress of a run", (row, text) => expect(progress(row, english)).toBe(text));

test("a title replaces the name", () => {
  expect(title(run("r1"))).toBe("digits");
  expect(title(run("r1", { title: "The best" }))).toBe("The best");
  expect(title(unreadable("r1"))).toBe("r1");
});

test("the label of a row has everything", () => {
  expect(rowLabel(run("r1", { labels: ["best"] }), null, english)).toBe(
    "digits, running, 42 % · 2:13 left, loss 0.130, 4 workers, this machine · a.ipynb, best",
  );
  expect(rowLabel(unreadable("r1"), null, english)).toBe("r1, cannot be read: run.json is damaged");
});

test("a monitor has no workers, and their number may be a range", () => {
  const rows = [run("r1"), run("r1", { min_workers: 2 }), run("r1", { workers: 0, strategy: "monitor" })];
  expect(rows.map((row) => size(row, english))).toEqual(["4 workers", "2..4 workers", "monitor"]);
});

test("the location has the file name of the notebook", () => {
  expect(location(run("r1"))).toBe("this machine · a.ipynb");
  expect(location(run("r1", { notebook: "" }))).toBe("this machine");
});

test("a time today, else a date", () => {
  const seconds = (...date: [number, number, number, number]) => new Date(...date).getTime() / 1000;
  const at = (...date: [number, number, number, number]) => dateOrTime(seconds(...date), seconds(2026, 10, 21, 12));
  expect([at(2026, 10, 21, 9), at(2026, 10, 20, 9), at(2025, 0, 2, 9)]).toEqual(["09:00", "2026-11-20", "2025-01-02"]);
});

test("a sparkline fills its area", () => {
  expect(points([3, 2, 1])).toBe("1.0,1.0 32.0,8.0 63.0,15.0");
  expect(points([2, 2])).toBe("1.0,15.0 63.0,15.0");
  expect([points([]), points([1])]).toEqual(["", ""]);
});
