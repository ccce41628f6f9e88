import { expect, test } from "vitest";
import { distanceTo } from "../../src/search/curves";
import { SearchModel, totals } from "../../src/search/model";
import { BEST_FIRST, type Order, ordered } from "../../src/search/order";
import { isChosen, objectiveScale, parameterScale, range } from "../../src/search/scales";
import { polyline } from "../../src/search/svg";
import { full, INFO, trial, update } from "./trials";

test("messages change trials, and a gap asks for a full one", () => {
  const model = new SearchModel();
  expect(model.apply(update(1, []))).toBe(false);
  expect(model.apply(full([trial(0), trial(1, { state: "training", seconds: null })], { front: [0] }))).toBe(true);
  expect(model.apply(update(2, [trial(1, { value: 0.9 })], { front: [1] }))).toBe(true);
  expect([model.best?.value, model.ended(), model.trials.size]).toEqual([0.9, 2, 2]);
  expect(model.apply(update(4, []))).toBe(false);
  expect(model.apply(full([trial(7)]))).toBe(true);
  expect([...model.trials.keys()]).toEqual([7]);
});

test("totals count the epochs that pruning has saved", () => {
  const pruned = trial(1, { state: "pruned", epochs: 3 });
  expect(totals([trial(0), pruned, trial(2, { state: "failed", tries: 2, epochs: 0 })])).toBe(
    "1 finished · 1 pruned (6 of 18 epochs saved) · 1 failed · 1 tried again",
  );
  expect(totals([])).toBe("0 finished · 0 pruned · 0 failed");
});

const TRIALS = [
  trial(0, { value: 0.5, params: [0.1, "relu"], seconds: 5 }),
  trial(1, { value: null, state: "waiting", params: [0.01, null], seconds: 1 }),
  trial(2, { value: 0.9, state: "pruned", params: [0.001, true], seconds: 9 }),
  trial(3, { value: 0.7, params: [0.05, "relu"], seconds: 7 }),
];

const numbers = (order: Order, direction: "max" | "min" = "max") =>
  ordered(TRIALS, order, direction, ({ seconds }) => seconds ?? 0).map(({ number }) => number);

test("the order of the table", () => {
  expect(numbers(BEST_FIRST)).toEqual([3, 0, 1, 2]);
  expect(numbers(BEST_FIRST, "min")).toEqual([0, 3, 1, 2]);
  expect(numbers({ column: "value", descending: true })).toEqual([2, 3, 0, 1]);
  expect(numbers({ column: "value", descending: false })).toEqual([0, 3, 2, 1]); // without a value: last, too
  expect(numbers({ column: "number", descending: true })).toEqual([3, 2, 1, 0]);
  expect(numbers({ column: "seconds", descending: false })).toEqual([1, 0, 3, 2]);
  expect(numbers({ column: "param:0", descending: false })).toEqual([2, 1, 3, 0]);
  expect(numbers({ column: "param:1", descending: false })).toEqual([0, 3, 2, 1]);
});

test("where values stand on an axis", () => {
  const [lr, act] = INFO.axes.map(parameterScale);
  expect(lr?.position(1e-4)).toBeCloseTo(0);
  expect(lr?.position(10 ** -2.5)).toBeCloseTo(0.5);
  expect([lr?.position(null), lr?.label(1), lr?.label(0)]).toEqual([null, "0.100", "0.000100"]);
  expect(["relu", null, true, "no"].map((value) => act?.position(value))).toEqual([0, 0.5, 1, null]);
  expect([act?.label(0.4), act?.label(1)]).toEqual(["None", "true"]);
  const value = objectiveScale("val_accuracy", [trial(0, { value: 0.5 }), trial(1, { value: 1 })]);
  expect([value.position(0.75), value.of(trial(0, { value: 0.6 }))]).toEqual([0.5, 0.6]);
});

test("pruned trials do not widen the range of the objective", () => {
  const far = trial(2, { state: "pruned", value: 1e6 });
  expect(range([trial(0, { value: 0.5 }), trial(1, { value: 1 }), far])).toEqual([0.5, 1]);
  expect(range([far])).toEqual([1e6 - 0.5, 1e6 + 0.5]);
  expect(range([])).toEqual([0, 1]);
});

test("brushes choose the trials that are in all of them", () => {
  const scales = INFO.axes.map(parameterScale);
  const brushes = new Map<string, readonly [number, number]>([["lr", [0.5, 1]]]);
  expect(TRIALS.filter((each) => isChosen(each, scales, brushes)).map(({ number }) => number)).toEqual([0, 1, 3]);
  brushes.set("act", [0, 0.2]);
  expect(TRIALS.filter((each) => isChosen(each, scales, brushes)).map(({ number }) => number)).toEqual([0, 3]);
});

test("lines", () => {
  expect([polyline([]), polyline([[1, 2]]), polyline([[0, 1], [2, 3.25]])]).toEqual(["", "M1.0 2.0h3", "M0.0 1.0L2.0 3.3"]); // biome-ignore format: one line
  const line = [[0, 0], [10, 10]] as const; // biome-ignore format: one line
  expect([distanceTo(line, 5, 9), distanceTo(line, 13, 14)]).toEqual([4, 5]);
  expect(distanceTo([], 0, 0)).toBe(Number.POSITIVE_INFINITY);
});
