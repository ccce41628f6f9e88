/** The words of the head, the notice and the status line. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { fraction, times } from "../src/view/header";
import { target } from "../src/view/keys";
import type { RunProgress, RunState } from "../src/view/messages";
import { RunModel } from "../src/view/model";
import { culprit } from "../src/view/notice";
import { isSilent, status } from "../src/view/status";
import { device } from "../src/view/table";
import { full, NOW, PROGRESS, STATE } from "./messages";

beforeEach(() => void vi.useFakeTimers({ now: NOW * 1000 }));
afterEach(() => void vi.useRealTimers());

function model(state: Partial<RunState> = {}, progress: Partial<RunProgress> = {}): RunModel {
  const made = new RunModel();
  made.apply(full(1, { state: { ...STATE, ...state }, progress: { ...PROGRESS, ...progress } }));
  return made;
}

test("the status line", () => {
  expect(status(model())).toBe("epoch 8 of 10 · step 412 of 938 · point 0.8 s old");
  expect(status(model({}, { fit: 1, steps: null }))).toBe("fit 2 · epoch 8 of 10 · step 412 · point 0.8 s old");
  expect(status(model({}, { fit: -1 }))).toBe("point 0.8 s old");
  expect(status(model({ state: "FINISHED", ended: NOW }, { epoch: 10, step: 0 }))).toBe("10 of 10 epochs");
});

test("a kernel that says nothing is noticed, unless the run is over", () => {
  const running = model();
  const over = model({ state: "FINISHED", ended: NOW });
  vi.setSystemTime((NOW + 60) * 1000);
  expect(isSilent(running)).toBe(true);
  expect(status(running)).toContain("no word from the kernel for 60 s");
  expect(isSilent(over)).toBe(false);
});

test("times go on between messages", () => {
  const running = model();
  expect(times(running)).toBe("2:20 elapsed · about 1:39 left");
  vi.setSystemTime((NOW + 30) * 1000);
  expect(times(running)).toBe("2:50 elapsed · about 1:09 left");
});

test("times of other states", () => {
  expect(times(model({ state: "QUEUED", started: null }))).toBe("waiting for 2:20");
  expect(times(model({ state: "STOPPED", ended: NOW }))).toBe("took 2:20");
  expect(times(model({ state: "STOPPING" }))).toBe("2:20 elapsed");
  expect(times(model({}, { remaining: null }))).toBe("2:20 elapsed");
});

test("the bar knows what it does not know", () => {
  expect(fraction("QUEUED", 0, null, null)).toBeNull();
  expect(fraction("WAITING", 0, 3, 8)).toBe(0.375);
  expect(fraction("RUNNING", 0, null, null)).toBeNull();
  expect(fraction("RUNNING", 0.4, null, null)).toBe(0.4);
  expect(fraction("FAILED", 0.4, null, null)).toBe(0.4);
  expect(fraction("FINISHED", 0.99, null, null)).toBe(1);
});

test("the culprit by rank and host", () => {
  const failure = { rank: 1, host: "wn4", kind: "error" as const, message: "", traceback: "" };
  expect(culprit(failure)).toBe("Rank 1 on wn4 raised an exception");
  expect(culprit({ ...failure, rank: -1, host: "", kind: "spark" })).toBe("The job was failed by Spark");
});

test("a device in words", () => {
  expect(device("CPU", 8)).toBe("CPU, 8 cores");
  expect(device("CPU", 1)).toBe("CPU, 1 core");
  expect(device("Tesla V100", 8)).toBe("Tesla V100");
  expect(device("", 8)).toBe("–");
});

test("arrow keys stay inside", () => {
  expect(target("ArrowRight", 0, 4, 1)).toBe(1);
  expect(target("ArrowRight", 3, 4, 1)).toBeNull();
  expect(target("ArrowDown", 3, 64, 16)).toBe(19);
  expect(target("ArrowUp", 3, 64, 16)).toBeNull();
  expect(target("End", 3, 64, 16)).toBe(63);
  expect(target("a", 3, 64, 16)).toBeNull();
});
