import { expect, test } from "vitest";
import { epochAt, epochTicks, nice, timeTicks, valueRange } from "../../src/view/axes";

const STARTS = { x: [0, 100, 200], y: [0, 1, 2] };

test("nice numbers are 1, 2 or 5 times a power of ten", () => {
  expect([0.03, 0.1, 1.4, 2, 3, 7, 60].map(nice)).toEqual([0.05, 0.1, 2, 2, 5, 10, 100]);
});

test("the ticks of epochs are where the epochs begin", () => {
  expect(epochTicks(STARTS, 100, 0, 250, 5)).toEqual([
    { at: 0, label: "epoch 0" },
    { at: 50, label: "0.5" },
    { at: 100, label: "1" },
    { at: 150, label: "1.5" },
    { at: 200, label: "2" },
    { at: 250, label: "2.5" },
  ]);
  expect(epochTicks(STARTS, 100, 0, 250, 3).map(({ label }) => label)).toEqual(["epoch 0", "1", "2"]);
});

test("epochs may differ in length", () => {
  const starts = { x: [0, 10, 110], y: [0, 1, 2] };
  expect(epochTicks(starts, 100, 0, 210, 3).map(({ at }) => at)).toEqual([0, 10, 110, 210]);
  expect(epochAt(starts, 100, 60)).toBe(1.5);
});

test("a zoomed range has ticks within an epoch", () => {
  expect(epochTicks(STARTS, 100, 110, 170, 3)).toEqual([
    { at: expect.closeTo(120), label: "epoch 1.2" },
    { at: 140, label: "1.4" },
    { at: 160, label: "1.6" },
  ]);
});

test("without epochs the ticks count steps", () => {
  expect(epochTicks(undefined, null, 0, 40, 4)).toEqual([
    { at: 0, label: "step 0" },
    { at: 10, label: "10" },
    { at: 20, label: "20" },
    { at: 30, label: "30" },
    { at: 40, label: "40" },
  ]);
  expect(epochAt(undefined, null, 3)).toBeNull();
  expect(epochAt({ x: [0], y: [0] }, null, 3)).toBeNull();
});

test("an epoch of unknown length is assumed to be as long as the one before", () => {
  expect(epochAt({ x: [0, 40], y: [0, 1] }, null, 60)).toBe(1.5);
});

test("ticks of time are at round times", () => {
  expect(timeTicks(0, 213, 5).map(({ label }) => label)).toEqual(["0:00", "1:00", "2:00", "3:00"]);
  expect(timeTicks(3.2, 9, 6).map(({ label }) => label)).toEqual(["0:04", "0:05", "0:06", "0:07", "0:08", "0:09"]);
  expect(timeTicks(0, 9e5, 4).length).toBeLessThanOrEqual(6);
});

test("a range begins at 0 unless that would flatten the line", () => {
  expect(valueRange(0.1, 2)[0]).toBe(0);
  expect(valueRange(0.95, 0.97)[0]).toBeGreaterThan(0.9);
  expect(valueRange(-1, 1)[0]).toBeLessThan(-1);
  expect(valueRange(900, 1000, "zero")[0]).toBe(0);
  expect(valueRange(1, 2, [0, 100])).toEqual([0, 100]);
});

test("a range is never empty", () => {
  for (const value of [3, 0, -2, Number.NaN]) {
    const [from, to] = valueRange(value, value);
    expect(to).toBeGreaterThan(from);
  }
});
