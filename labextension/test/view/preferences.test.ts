import { afterEach, expect, test } from "vitest";
import { joined, type Trace, thinned } from "../../src/view/chart";
import { onPreferencesChange, preferences, setPreferences } from "../../src/view/preferences";

const DEFAULTS = preferences();
const LINE = { x: [1, 2, 3, 4, 5, 6, 7], y: [10, 20, null, 40, 50, 60, 70] };

afterEach(() => setPreferences(DEFAULTS));

test("a line is thinned to a number of points, and keeps its last one", () => {
  expect(thinned(LINE, 7)).toBe(LINE);
  expect(thinned(LINE, 4)).toEqual({ x: [1, 3, 5, 7], y: [10, null, 50, 70] });
  expect(thinned(LINE, 3)).toEqual({ x: [1, 4, 7], y: [10, 40, 70] });
  for (const most of [2, 3, 5, 6]) expect(thinned(LINE, most).x.length).toBeLessThanOrEqual(most);
  expect(thinned({ x: [], y: [] }, 5)).toEqual({ x: [], y: [] });
});

test("charts keep to the maximum number of points", () => {
  const traces: Trace[] = [{ line: LINE, colour: 0, format: String }];
  expect(joined(traces)[0]).toHaveLength(7);
  setPreferences({ maxPoints: 4, series: "default" });
  expect(joined(traces)).toEqual([
    [1, 3, 5, 7],
    [10, null, 50, 70],
  ]);
});

test("listeners are called after each change, until they are removed", () => {
  let calls = 0;
  const removeListener = onPreferencesChange(() => {
    calls += 1;
  });
  setPreferences({ maxPoints: 100, series: "colour-blind" });
  expect(calls).toBe(1);
  expect(preferences()).toEqual({ maxPoints: 100, series: "colour-blind" });
  removeListener();
  setPreferences(DEFAULTS);
  expect(calls).toBe(1);
});
