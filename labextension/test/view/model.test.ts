import { beforeEach, expect, test } from "vitest";
import { RunModel, unpack } from "../../src/view/model";
import { delta, full, info, PROGRESS, RUN, STATE } from "../messages";

let model: RunModel;

beforeEach(() => {
  model = new RunModel();
});

test("an update before the first full message is rejected", () => {
  expect(model.apply(delta(5))).toBe(false);
  expect(model.run).toBeNull();
  expect(model.apply(full(6))).toBe(true);
  expect(model.run).toEqual(RUN);
});

test("an update after a missing message is rejected and changes nothing", () => {
  model.apply(full(1));
  expect(model.apply(delta(3, { logs: [[0, "out", "too early"]] }))).toBe(false);
  expect(model.logs).toEqual([]);
  expect(model.apply(delta(2, { logs: [[0, "out", "in order"]] }))).toBe(true);
  expect(model.logs).toEqual([[0, "out", "in order"]]);
});

test("a message replaces the points of a series from an index on", () => {
  model.apply(full(1, { lines: { "metric:loss": { points: [[1, 4], [2, 2]] } } })); // biome-ignore format: points
  model.apply(delta(2, { lines: { "metric:loss": { at: 1, points: [[3, 1], [4, Number.NaN]] } } })); // biome-ignore format: points
  expect(model.line("metric:loss")).toEqual({ x: [1, 3, 4], y: [4, 1, null] });
  model.apply(delta(3, { lines: { "metric:loss": { at: 0, points: [[4, 2]] }, "metric:val_loss": { points: [[4, 3]] } } })); // biome-ignore format: points
  expect(model.line("metric:loss")).toEqual({ x: [4], y: [2] });
  expect(model.line("metric:val_loss")).toEqual({ x: [4], y: [3] });
  expect(model.metrics()).toEqual(["loss"]);
});

test("an update changes only the parts that it has", () => {
  model.apply(full(1, { latest: { loss: 1 }, workers: [info(0), info(1)], numbers: [{ rank: 1, cpu: 50 }] }));
  model.apply(delta(2, { workers: [info(1, { state: "failed" })], numbers: [{ rank: 0, cpu: 70 }] }));
  expect(model.state).toEqual(STATE);
  expect(model.progress).toEqual(PROGRESS);
  expect(model.latest).toEqual({ loss: 1 });
  expect(model.ranks().map(({ info }) => info.state)).toEqual(["training", "failed"]);
  expect(model.ranks().map(({ numbers }) => numbers.cpu)).toEqual([70, 50]);
});

test("a full message replaces everything", () => {
  model.apply(full(1, { workers: [info(0)], logs: [[0, "out", "old"]], lines: { rate: { points: [[1, 1]] } } }));
  model.apply(full(9, { workers: [info(1)] }));
  expect(model.ranks().map(({ info }) => info.rank)).toEqual([1]);
  expect(model.logs).toEqual([]);
  expect(model.lines.size).toBe(0);
});

test("a line tells how many log lines were dropped", () => {
  model.apply(full(1));
  model.apply(delta(2, { logs: [[0, "out", "kept"]], dropped: 12 }));
  expect(model.logs.map(([, , text]) => text)).toEqual([expect.stringContaining("12 lines"), "kept"]);
});

test("the log is bounded, and all lines are counted", () => {
  model.apply(full(1));
  for (let n = 2; n < 302; n++) model.apply(delta(n, { logs: Array.from({ length: 10 }, () => [0, "out", "x"]) }));
  expect(model.logged).toBe(3000);
  expect(model.logs.length).toBe(2000);
});

test("the offset of a buffer need not be a multiple of four", () => {
  const bytes = new Uint8Array(9);
  bytes.set(new Uint8Array(Float32Array.of(1.5, -2).buffer), 1);
  const { message } = delta(1);
  expect([...unpack(message, [new DataView(bytes.buffer, 1, 8)]).points]).toEqual([1.5, -2]);
  expect(unpack(message, []).rows.length).toBe(0);
});
