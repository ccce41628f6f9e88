/** The texts of the header, the notice, the status line and the table. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Failure, RunProgress, RunState } from "../../src/generated";
import { fraction, times } from "../../src/view/header";
import { moved } from "../../src/view/keys";
import { RunModel } from "../../src/view/model";
import { failureSummary } from "../../src/view/notice";
import { isSilent, status, stepTime } from "../../src/view/status";
import { device } from "../../src/view/table";
import { full, NOW, PROGRESS, STATE } from "../messages";

beforeEach(() => void vi.useFakeTimers({ now: NOW * 1000 }));
afterEach(() => void vi.useRealTimers());

function model(state: Partial<RunState> = {}, progress: Partial<RunProgress> = {}): RunModel {
  const model = new RunModel();
  model.apply(full(1, { state: { ...STATE, ...state }, progress: { ...PROGRESS, ...progress } }));
  return model;
}

test("where the time of a step goes", () => {
  const running = model();
  expect(stepTime(running)).toEqual([]);
  const numbers = [{ rank: 0, data: 0.5, waiting: 0.02 }, { rank: 1, data: 0.1, waiting: 0.42, network: 0.02 }]; // biome-ignore format: one line
  running.apply(full(2, { numbers }));
  expect(stepTime(running)).toEqual(["47 % computing, 30 % waiting for data, 22 % waiting for workers"]);
  expect(status(running)).toContain(" · 47 % computing, 30 % waiting for data");
});

test("the status line", () => {
  expect(status(model())).toBe("epoch 8 of 10 · step 412 of 938 · updated 0.8 s ago");
  expect(status(model({}, { fit: 1, steps: null }))).toBe("fit 2 · epoch 8 of 10 · step 412 · updated 0.8 s ago");
  expect(status(model({}, { fit: -1 }))).toBe("updated 0.8 s ago");
  expect(status(model({ state: "FINISHED", ended: NOW }, { epoch: 10, step: 0 }))).toBe("10 of 10 epochs");
});

test("an overdue message is reported, unless the run has ended", () => {
  const running = model();
  const over = model({ state: "FINISHED", ended: NOW });
  vi.setSystemTime((NOW + 60) * 1000);
  expect(isSilent(running)).toBe(true);
  expect(status(running)).toContain("no message from the kernel for 60 s");
  expect(isSilent(over)).toBe(false);
});

test("the times advance between messages", () => {
  const running = model();
  expect(times(running)).toBe("2:20 elapsed · about 1:39 left");
  vi.setSystemTime((NOW + 15) * 1000);
  expect(times(running)).toBe("2:35 elapsed · about 1:24 left");
});

test("the times of other states", () => {
  expect(times(model({ state: "QUEUED", started: null }))).toBe("waiting for 2:20");
  expect(times(model({ state: "STOPPED", ended: NOW }))).toBe("took 2:20");
  expect(times(model({ state: "STOPPED", started: NOW - 60, ended: NOW }))).toBe("trained 1:00, 2:20 with waiting");
  expect(times(model({ state: "STOPPING" }))).toBe("2:20 elapsed");
  expect(times(model({}, { end: null }))).toBe("2:20 elapsed");
});

test("the bar is indeterminate while the progress is unknown", () => {
  expect(fraction("QUEUED", 0, null, null)).toBeNull();
  expect(fraction("WAITING", 0, 3, 8)).toBe(0.375);
  expect(fraction("PREFLIGHT", 0, null, null)).toBeNull();
  expect(fraction("PREFLIGHT", 0, 1, 4)).toBe(0.25);
  expect(fraction("RUNNING", 0, null, null)).toBeNull();
  expect(fraction("RUNNING", 0.4, null, null)).toBe(0.4);
  expect(fraction("FAILED", 0.4, null, null)).toBe(0.4);
  expect(fraction("FINISHED", 0.99, null, null)).toBe(1);
});

test("a failure names rank and host", () => {
  const failure: Failure = { rank: 1, host: "wn4", kind: "error", message: "", traceback: "" };
  expect(failureSummary(failure)).toBe("Rank 1 on wn4 raised an exception");
  expect(failureSummary({ ...failure, rank: -1, host: "", kind: "spark" })).toBe("The job failed in Spark");
});

test("a device has a name and cores", () => {
  expect(device("CPU", 8)).toBe("CPU, 8 cores");
  expect(device("CPU", 1)).toBe("CPU, 1 core");
  expect(device("Tesla V100", 8)).toBe("Tesla V100");
  expect(device("", 8)).toBe("–");
});

test("keys move within a group", () => {
  expect(moved("ArrowRight", 0, 4, 1)).toBe(1);
  expect(moved("ArrowRight", 3, 4, 1)).toBeNull();
  expect(moved("ArrowDown", 3, 64, 16)).toBe(19);
  expect(moved("ArrowUp", 3, 64, 16)).toBeNull();
  expect(moved("End", 3, 64, 16)).toBe(63);
  expect(moved("a", 3, 64, 16)).toBeNull();
});
