// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { COLUMNS, type ReadLogsQuery, type Replay, type RunState, type StoredLogLine } from "../../src/generated";
import type { PrintedLine } from "../../src/run/logpages";
import { Player } from "../../src/run/player";
import { Recording } from "../../src/run/recording";
import { modelAt, stepAt, timeSpan } from "../../src/run/replay";
import { english } from "../../src/translation";
import { times } from "../../src/view/header";
import { RunModel } from "../../src/view/model";
import { status } from "../../src/view/status";
import { find } from "../dom";
import { delta, full, info, NOW, PROGRESS, STATE } from "../messages";

const ENDED: RunState = { ...STATE, state: "FINISHED", created: NOW - 110, started: NOW - 100, ended: NOW };

/** Ten seconds of waiting, then a step each second for 100 seconds. */
function model(state: RunState = ENDED): RunModel {
  const made = new RunModel();
  made.apply(
    full(1, {
      state,
      latest: { loss: 0.1, val_loss: 0.2 },
      lines: {
        seconds: { points: [[0, 10], [50, 60], [100, 110]] },
        "metric:loss": { points: [[10, 1], [50, 0.5], [100, 0.1]] },
        "metric:val_loss": { points: [[50, 0.6], [100, 0.2]] },
        rate: { points: [[20, 300], [60, 400], [110, 500]] },
        workers: { points: [[20, 3], [57, 2]] },
        "cpu:0": { points: [[15, 80], [100, 90]] },
      },
    }),
  ); // biome-ignore format: points
  return made;
}

test("a run can be replayed from its first steps to its end, once it has ended and if its times are known", () => {
  expect(timeSpan(model())).toEqual([10, 110]);
  expect(timeSpan(model(STATE))).toBeNull();
  const unknown = model();
  unknown.lines.delete("seconds");
  expect(timeSpan(unknown)).toBeNull();
});

test("the past model has the points up to the time, over steps and over time", () => {
  const past = modelAt(model(), 61);
  expect(past.line("metric:loss")?.y.at(-1)).toBeCloseTo(0.5);
  expect(past.line("rate")?.x).toEqual([20, 60]);
  expect(past.line("workers")?.y).toEqual([3, 2]);
  expect(past.line("cpu:0")?.x).toEqual([15]);
  expect(past.latest.val_loss).toBeCloseTo(0.6);
  expect(past.progress?.rate).toBe(400);
});

test("the past model has the workers and the log of the time, and is running", () => {
  const run = model();
  run.apply(delta(2, { numbers: [{ rank: 1, compute: 99 }], workers: [info(1, { state: "finished" })] }));
  const row = (compute: number) => Float32Array.from(COLUMNS, (name) => (name === "compute" ? compute : 1));
  const frames = [
    { seconds: 20, rows: row(5) },
    { seconds: 60, rows: row(7) },
  ];
  const printed = [15, 61, 62].map((second): PrintedLine => {
    return { time: NOW - 110 + second, rank: 1, level: "out", text: `at ${second}` };
  });
  const at = (seconds: number) => modelAt(run, seconds, frames, printed);
  expect(at(12).ranks()).toEqual([]);
  const past = at(61);
  expect(past.ranks().map(({ numbers }) => numbers.compute)).toEqual([7]);
  expect(past.ranks()[0]?.info).toMatchObject({ host: "wn4", state: "" });
  expect([12, 61, 99].map((seconds) => at(seconds).logs.length)).toEqual([0, 2, 3]);
  expect(past.logs.at(-1)).toEqual([1, "out", "at 61"]);
  expect([past.over, times(past), past.state?.failure]).toEqual([false, "1:01 elapsed", null]);
});

test("epoch and step are those of the time; the epochs of several fits are numbered through", () => {
  const run = model();
  run.lines.set("epoch", { x: [0, 25, 50, 75, 100], y: [0, 1, 2, 3, 4] });
  const statusOf = (fit: number) => {
    run.progress = { ...PROGRESS, fit, epoch: 4, epochs: 4, step: 0, steps: 25 };
    return status(modelAt(run, 45));
  };
  expect(statusOf(0)).toBe("epoch 2 of 4 · step 10 of 25");
  expect(statusOf(1)).toBe("epoch 2 · step 10 of 25");
});

test("the recording is loaded once and as a whole, and again after an error", async () => {
  const requests: string[] = [];
  const answers: (Error | Replay)[] = [
    new Error("gone"),
    { frames: [], behind: 0.5 },
    { frames: [{ seconds: 3, rows: "AACAPw==" }], behind: 0 },
  ];
  const api = {
    replay: async () => {
      requests.push("replay");
      const next = answers.shift();
      if (!next || next instanceof Error) throw next;
      return next;
    },
    logs: async (_: string, rank: number | "all", { tail }: ReadLogsQuery) => {
      requests.push(`logs of ${rank}${tail ? ", the end" : ""}`);
      const lines: StoredLogLine[] = [
        [1, -1, "info", "WAITING: 2 of 2 workers"],
        [2, -1, "info", "RUNNING: rank 1 on a died; 2 workers train on"],
        [3, 0, "out", "hello"],
      ];
      return { lines, offset: 9, begin: 0, more: false };
    },
  };
  const recording = new Recording(api, "r1");
  const { signal } = new AbortController();
  await expect(recording.load(signal)).rejects.toThrow("gone");
  await Promise.all([recording.load(signal), recording.load(signal)]);
  expect(recording.frames).toEqual([{ seconds: 3, rows: Float32Array.of(1) }]);
  const printed = new Set(recording.printed.map(({ text }) => text));
  expect([...printed]).toEqual(["RUNNING: rank 1 on a died; 2 workers train on", "hello"]);
  expect(requests.filter((what) => what === "replay")).toHaveLength(3);
});

test("the past model is empty at the begin and complete at the end, and the current one stays unchanged", () => {
  const run = model();
  expect(modelAt(run, 10).metrics()).toEqual([]);
  expect(modelAt(run, 110).line("metric:loss")).toEqual(run.line("metric:loss"));
  expect(run.line("metric:loss")?.x).toHaveLength(3);
  expect([0, 10, 35, 60, 999].map((time) => stepAt(run, time))).toEqual([0, 0, 25, 50, 100]);
});

let positions: (number | null)[];
let player: Player;
let reducedMotion = false;

const control = <E extends Element = HTMLElement>(selector: string) => find<E>(selector, player.element);

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("matchMedia", () => ({ matches: reducedMotion }));
  reducedMotion = false;
  positions = [];
  player = new Player(english, (position) => positions.push(position));
  player.setSpan([10, 110]);
});

afterEach(() => {
  player.pause();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("the player is at the end at first, and plays from the begin at the selected speed", () => {
  expect(positions).toEqual([null]);
  control<HTMLSelectElement>("select").value = "4";
  control("button").click();
  expect([positions.at(-1), control("button").textContent]).toEqual([10, "Pause"]);
  vi.advanceTimersByTime(10_000);
  expect(positions.at(-1)).toBeCloseTo(50);
  control<HTMLSelectElement>("select").value = "64";
  vi.advanceTimersByTime(1000);
  expect([positions.at(-1), control("button").textContent]).toEqual([null, "Replay"]);
});

test("the player pauses, continues, and is moved by the slider", () => {
  control<HTMLSelectElement>("select").value = "1";
  control("button").click();
  vi.advanceTimersByTime(5000);
  control("button").click();
  vi.advanceTimersByTime(5000);
  expect(positions.at(-1)).toBeCloseTo(15);
  control<HTMLInputElement>("input").value = "60";
  control("input").dispatchEvent(new Event("input"));
  expect(positions.at(-1)).toBe(60);
  expect(control("input").getAttribute("aria-valuetext")).toBe("0:50 of 1:40");
  control("button").click();
  vi.advanceTimersByTime(2000);
  expect(positions.at(-1)).toBeCloseTo(62);
});

test("the space bar on the slider plays and pauses", () => {
  const press = () => control("input").dispatchEvent(new KeyboardEvent("keydown", { key: " ", cancelable: true }));
  expect(press()).toBe(false);
  expect(control("button").textContent).toBe("Pause");
  press();
  expect(control("button").textContent).toBe("Replay");
});

test("with reduced motion the frames are seconds apart", () => {
  reducedMotion = true;
  control("button").click();
  const before = positions.length;
  vi.advanceTimersByTime(4000);
  expect(positions.length - before).toBe(2);
});
