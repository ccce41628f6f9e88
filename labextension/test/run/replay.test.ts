// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { LogQuery, Replay } from "../../src/api";
import { Player } from "../../src/run/player";
import { Recording } from "../../src/run/recording";
import { modelAt, span, stepAt } from "../../src/run/replay";
import { english } from "../../src/translation";
import { times } from "../../src/view/header";
import { COLUMNS } from "../../src/view/messages";
import { RunModel } from "../../src/view/model";
import { status } from "../../src/view/status";
import { delta, facts, full, NOW, PROGRESS, STATE } from "../messages";

const ENDED = { ...STATE, state: "FINISHED" as const, created: NOW - 110, started: NOW - 100, ended: NOW };

/** Ten seconds of waiting, then a step each second for 100 seconds. */
function whole(state: object = ENDED): RunModel {
  const model = new RunModel();
  model.apply(
    full(1, {
      state: state as typeof ENDED,
      latest: { loss: 0.1, val_loss: 0.2 },
      lines: {
        seconds: { points: [[0, 10], [50, 60], [100, 110]] },
        "metric:loss": { points: [[10, 1], [50, 0.5], [100, 0.1]] },
        "metric:val_loss": { points: [[50, 0.6], [100, 0.2]] },
        rate: { points: [[20, 300], [60, 400], [110, 500]] },
        "cpu:0": { points: [[15, 80], [100, 90]] },
      },
    }),
  ); // biome-ignore format: points
  return model;
}

test("a run is played from its first steps to its end; not while it goes on, nor where times are not known", () => {
  expect(span(whole())).toEqual([10, 110]);
  expect(span(whole(STATE))).toBeNull();
  const unknown = whole();
  unknown.lines.delete("seconds");
  expect(span(unknown)).toBeNull();
});

test("at a moment there are the points up to it, over steps and over time", () => {
  const past = modelAt(whole(), 61);
  expect(past.line("metric:loss")?.y.at(-1)).toBeCloseTo(0.5);
  expect(past.line("rate")?.x).toEqual([20, 60]);
  expect(past.line("cpu:0")?.x).toEqual([15]);
  expect(past.latest.val_loss).toBeCloseTo(0.6);
  expect(past.progress?.rate).toBe(400);
});

test("at a moment there are the workers and the lines of then, and it goes on", () => {
  const run = whole();
  run.apply(delta(2, { numbers: [{ rank: 1, compute: 99 }], workers: [facts(1, { state: "finished" })] }));
  const row = (compute: number) => Float32Array.from(COLUMNS, (name) => (name === "compute" ? compute : 1));
  const frames = [
    { seconds: 20, rows: row(5) },
    { seconds: 60, rows: row(7) },
  ];
  const printed = [15, 61, 62].map((second) => {
    return { time: NOW - 110 + second, rank: 1, level: "out" as const, text: `at ${second}` };
  });
  const at = (seconds: number) => modelAt(run, seconds, frames, printed);
  expect(at(12).ranks()).toEqual([]);
  expect(
    at(61)
      .ranks()
      .map(({ numbers }) => numbers.compute),
  ).toEqual([7]);
  expect(at(61).ranks()[0]?.facts).toMatchObject({ host: "wn4", state: "" });
  expect([12, 61, 99].map((seconds) => at(seconds).logs.length)).toEqual([0, 2, 3]);
  expect(at(61).logs.at(-1)).toEqual([1, "out", "at 61"]);
  expect([at(61).over, times(at(61)), at(61).state?.failure]).toEqual([false, "1:01 elapsed", null]);
});

test("epoch and step are those of then; those of several fits count through", () => {
  const run = whole();
  run.lines.set("epoch", { x: [0, 25, 50, 75, 100], y: [0, 1, 2, 3, 4] });
  const told = (fit: number) => {
    run.progress = { ...PROGRESS, fit, epoch: 4, epochs: 4, step: 0, steps: 25 };
    return status(modelAt(run, 45));
  };
  expect(told(0)).toBe("epoch 2 of 4 · step 10 of 25");
  expect(told(1)).toBe("epoch 2 · step 10 of 25");
});

test("the recording is asked for once, until all of it has been read; again where it could not be had", async () => {
  const asked: string[] = [];
  const answers = [
    new Error("gone"),
    { moments: [], behind: 0.5 },
    { moments: [{ seconds: 3, rows: "AACAPw==" }], behind: 0 },
  ];
  const api = {
    replay: async () => {
      asked.push("replay");
      const next = answers.shift();
      if (next instanceof Error) throw next;
      return next as Replay;
    },
    logs: async (_: string, rank: number | "all", { tail }: LogQuery) => {
      asked.push(`logs of ${rank}${tail ? ", the end" : ""}`);
      return { lines: [[1, 0, "out", "hello"]], offset: 9, begin: 0, more: false };
    },
  };
  const recording = new Recording(api, "r1");
  const { signal } = new AbortController();
  await expect(recording.load(signal)).rejects.toThrow("gone");
  await Promise.all([recording.load(signal), recording.load(signal)]);
  expect(recording.frames).toEqual([{ seconds: 3, rows: Float32Array.of(1) }]);
  expect(recording.printed.at(-1)?.text).toBe("hello");
  expect(asked.filter((what) => what === "replay")).toHaveLength(3);
});

test("at its begin there is no step, at its end all that the run has, which stays as it is", () => {
  const run = whole();
  expect(modelAt(run, 10).metrics()).toEqual([]);
  expect(modelAt(run, 110).line("metric:loss")).toEqual(run.line("metric:loss"));
  expect(run.line("metric:loss")?.x).toHaveLength(3);
  expect([0, 10, 35, 60, 999].map((time) => stepAt(run, time))).toEqual([0, 0, 25, 50, 100]);
});

let moments: (number | null)[];
let player: Player;
let still = false;

const find = <E extends HTMLElement>(selector: string) => player.element.querySelector<E>(selector) as E;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("matchMedia", () => ({ matches: still }));
  still = false;
  moments = [];
  player = new Player(english, (moment) => moments.push(moment));
  player.set([10, 110]);
});

afterEach(() => {
  player.pause();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("it stands at the end, and plays from the begin to the end at the speed that is chosen", () => {
  expect(moments).toEqual([null]);
  find<HTMLSelectElement>("select").value = "4";
  find("button").click();
  expect([moments.at(-1), find("button").textContent]).toEqual([10, "Pause"]);
  vi.advanceTimersByTime(10_000);
  expect(moments.at(-1)).toBeCloseTo(50);
  find<HTMLSelectElement>("select").value = "64";
  vi.advanceTimersByTime(1000);
  expect([moments.at(-1), find("button").textContent]).toEqual([null, "Replay"]);
});

test("it pauses, goes on from there, and is moved by the slider", () => {
  find<HTMLSelectElement>("select").value = "1";
  find("button").click();
  vi.advanceTimersByTime(5000);
  find("button").click();
  vi.advanceTimersByTime(5000);
  expect(moments.at(-1)).toBeCloseTo(15);
  find<HTMLInputElement>("input").value = "60";
  find("input").dispatchEvent(new Event("input"));
  expect(moments.at(-1)).toBe(60);
  expect(find("input").getAttribute("aria-valuetext")).toBe("0:50 of 1:40");
  find("button").click();
  vi.advanceTimersByTime(2000);
  expect(moments.at(-1)).toBeCloseTo(62);
});

test("the space bar on the slider plays and pauses", () => {
  const press = () => find("input").dispatchEvent(new KeyboardEvent("keydown", { key: " ", cancelable: true }));
  expect(press()).toBe(false);
  expect(find("button").textContent).toBe("Pause");
  press();
  expect(find("button").textContent).toBe("Replay");
});

test("who wants less motion sees still pictures, seconds apart", () => {
  still = true;
  find("button").click();
  const before = moments.length;
  vi.advanceTimersByTime(4000);
  expect(moments.length - before).toBe(2);
});
