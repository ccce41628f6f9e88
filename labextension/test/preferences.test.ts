import { afterEach, expect, test } from "vitest";
import { joined, type Trace, thinned } from "../src/view/chart";
import { onPreference, prefer, preferences } from "../src/view/preferences";

const DEFAULTS = preferences();
const LINE = { x: [1, 2, 3, 4, 5, 6, 7], y: [10, 20, null, 40, 50, 60, 70] };

afterEach(() => prefer(DEFAULTS));

test("a line is thinned to at most so many points, and ends where it ended", () => {
  expect(thinned(LINE, 7)).toBe(LINE);
  expect(thinned(LINE, 4)).toEqual({ x: [1, 3, 5, 7], y: [10, null, 50, 70] });
  expect(thinned(LINE, 3)).toEqual({ x: [1, 4, 7], y: [10, 40, 70] });
  for (const most of [2, 3, 5, 6]) expect(thinned(LINE, most).x.length).toBeLessThanOrEqual(most);
  expect(thinned({ x: [], y: [] }, 5)).toEqual({ x: [], y: [] });
});

test("charts have as many points as the reader wants", () => {
  const traces = [{ line: LINE, colour: 0, says: String }] as Trace[];
  expect(joined(traces)[0]).toHaveLength(7);
  prefer({ maxPoints: 4, series: "default" });
  expect(joined(traces)).toEqual([
    [1, 3, 5, 7],
    [10, null, 50, 70],
  ]);
});

test("who draws is told when the reader wants something else, until it stops listening", () => {
  let told = 0;
  const stop = onPreference(() => {
    told += 1;
  });
  prefer({ maxPoints: 100, series: "colour-blind" });
  expect(told).toBe(1);
  expect(preferences()).toEqual({ maxPoints: 100, series: "colour-blind" });
  stop();
  prefer(DEFAULTS);
  expect(told).toBe(1);
});
