import { expect, test } from "vitest";
import { type Axis, aligned, chartNames, RATE, WORKERS } from "../../src/compare/align";
import type { RunState } from "../../src/generated";
import { RunModel } from "../../src/view/model";
import { full, type Lines, type Point, PROGRESS, STATE } from "../messages";

/** 2 epochs of 10 steps, 2 seconds each step, that began 7 seconds after the run was created. */
const LINES: Lines = {
  "metric:loss": { points: [[5, 4], [10, 3], [15, 2], [20, 1]] }, // biome-ignore format: points
  "metric:val_loss": { points: [[10, 3.5], [20, 1.5]] }, // biome-ignore format: points
  epoch: { points: [[0, 0], [10, 1], [20, 2]] }, // biome-ignore format: points
  seconds: { points: [[0, 7], [10, 27], [20, 47]] }, // biome-ignore format: points
  samples: { points: [[0, 0], [10, 640], [20, 1280]] }, // biome-ignore format: points
  rate: { points: [[3, 0], [7, 50], [17, 60], [47, 70], [60, 0]] }, // biome-ignore format: points
};

function model(lines: Lines = LINES, state: Partial<RunState> = STATE): RunModel {
  const model = new RunModel();
  model.apply(full(1, { lines, state: { ...STATE, ...state }, progress: { ...PROGRESS, steps: 10 } }));
  return model;
}

const xs = (of: RunModel, name: string, axis: Axis) => aligned(of, name, axis)?.x;

test("a metric over steps, samples, over the time since training began, and over epochs", () => {
  expect(xs(model(), "loss", "step")).toEqual([5, 10, 15, 20]);
  expect(xs(model(), "loss", "time")).toEqual([10, 20, 30, 40]);
  expect(xs(model(), "loss", "epoch")).toEqual([0.5, 1, 1.5, 2]);
  expect(xs(model(), "loss", "sample")).toEqual([320, 640, 960, 1280]);
  expect(aligned(model(), "val_loss", "time")).toEqual({ x: [20, 40], y: [3.5, 1.5] });
});

test("samples/s over time, and over the steps done by then", () => {
  expect(aligned(model(), RATE, "time")).toEqual({ x: [0, 10, 40, 53], y: [50, 60, 70, 0] });
  expect(aligned(model(), RATE, "step")).toEqual({ x: [0, 5, 20], y: [50, 60, 70] });
  expect(aligned(model(), RATE, "epoch")).toEqual({ x: [0, 0.5, 2], y: [50, 60, 70] });
});

test("the number of workers is drawn as samples/s are", () => {
  const workers = { workers: { points: [[7, 3], [27, 2]] as Point[] } }; // biome-ignore format: points
  const of = model({ ...LINES, ...workers });
  expect(aligned(of, WORKERS, "time")).toEqual({ x: [0, 20], y: [3, 2] });
  expect(aligned(of, WORKERS, "step")).toEqual({ x: [0, 10], y: [3, 2] });
  expect(chartNames([of, model()])).toEqual(["loss", "val_loss", RATE, WORKERS]);
});

test("the time before the training does not count", () => {
  const later = Object.fromEntries(
    Object.entries(LINES).map(([key, { points }]) => {
      const shift = ([x, y]: Point): Point =>
        key === "seconds" ? [x, y + 100] : key === "rate" ? [x + 100, y] : [x, y];
      return [key, { points: points.map(shift) }];
    }),
  );
  const waited = model(later, { created: STATE.created - 100 });
  for (const name of ["loss", RATE]) expect(xs(waited, name, "time")).toEqual(xs(model(), name, "time"));
});

test("the steps per epoch may differ", () => {
  const halves = { ...LINES, epoch: { points: [[0, 0], [5, 1], [10, 2], [15, 3], [20, 4]] as Point[] } }; // biome-ignore format: points
  const halved = new RunModel();
  halved.apply(full(1, { lines: halves, progress: { ...PROGRESS, steps: 5 } }));
  expect(xs(halved, "loss", "epoch")).toEqual([1, 2, 3, 4]);
});

test("exact values replace running ones once there are two", () => {
  const epochs = (...points: Point[]) => model({ ...LINES, "epochs:loss": { points } });
  expect(aligned(epochs([10, 3.2], [20, 1.2]), "loss", "epoch")).toEqual({ x: [1, 2], y: [3.2, 1.2].map(Math.fround) });
  expect(xs(epochs([10, 3.2]), "loss", "step")).toHaveLength(4);
});

test("an epoch in progress is a fraction", () => {
  const begun = model({ "metric:loss": { points: [[4, 2]] }, epoch: { points: [[0, 0]] } });
  expect(xs(begun, "loss", "epoch")).toEqual([0.4]);
});

test("a line with unknown positions is null, a missing one undefined", () => {
  const loop = model({ "metric:loss": { points: [[1, 2]] }, rate: { points: [[8, 50]] } });
  expect(xs(loop, "loss", "step")).toEqual([1]);
  expect(aligned(loop, "loss", "time")).toBeNull();
  expect(aligned(loop, "loss", "epoch")).toBeNull();
  expect(aligned(loop, "loss", "sample")).toBeNull();
  expect(aligned(loop, RATE, "step")).toBeNull();
  expect(aligned(loop, "accuracy", "step")).toBeUndefined();
});

test("the charts of all runs: loss first, validation after training, samples/s last", () => {
  const one = model({ ...LINES, "metric:accuracy": { points: [[1, 0]] } });
  const other = model({ "metric:mae": { points: [[1, 0]] }, "metric:val_mae": { points: [[1, 0]] } });
  expect(chartNames([other, one])).toEqual(["loss", "mae", "accuracy", "val_loss", "val_mae", RATE]);
  expect(chartNames([other])).toEqual(["mae", "val_mae"]);
  expect(chartNames([])).toEqual([]);
});
