import { expect, test } from "vitest";
import { heat } from "../../src/view/heatmap";
import { RunModel, type Worker } from "../../src/view/model";
import { median, outliers, slower, slowness, verdict } from "../../src/view/stragglers";
import { full, info } from "../messages";

function workers(numbers: { compute?: number; data?: number; rate?: number }[]): Worker[] {
  const model = new RunModel();
  model.apply(
    full(1, { numbers: numbers.map((row, rank) => ({ rank, ...row })), workers: numbers.map((_, i) => info(i)) }),
  );
  return model.ranks();
}

test("the lower median: of two ranks the faster one is the reference", () => {
  expect(median([46, 26])).toBe(26);
  expect(median([1, 2, 3])).toBe(2);
  expect(median([Number.NaN, 4])).toBe(4);
  expect(median([])).toBeNaN();
});

test("a rank that computes longer is slower", () => {
  const ratios = slowness(workers([{ compute: 26 }, { compute: 26 }, { compute: 46.8 }, { compute: 27 }]), false);
  expect([...ratios.values()].map((ratio) => ratio.toFixed(2))).toEqual(["1.00", "1.00", "1.80", "1.04"]);
});

test("a rank that waits for its data holds the others back, too", () => {
  const ratios = slowness(
    workers([
      { compute: 20, data: 0 },
      { compute: 20, data: 0.5 },
    ]),
    false,
  );
  expect([...ratios.values()]).toEqual([1, 2]);
});

test("a parameter-server run compares samples/s", () => {
  const ratios = slowness(workers([{ rate: 1000 }, { rate: 500 }, { rate: 1000 }]), true);
  expect([...ratios.values()]).toEqual([1, 2, 1]);
});

test("a rank is called slow from 1.2 times the median on", () => {
  expect(slower(1.8)).toBe("1.8× slower");
  expect(slower(1.1)).toBe("");
  expect(slower(Number.NaN)).toBe("");
  expect(slower(undefined)).toBe("");
});

test("outliers are the named ranks and the slowest ones", () => {
  const list = workers(Array.from({ length: 64 }, (_, rank) => ({ compute: rank < 40 ? 10 : 10 + rank })));
  const found = outliers(list, slowness(list, false), [5]).map((worker) => worker.info.rank);
  expect(found).toEqual([5, 63, 62, 61, 60, 59, 58, 57, 56]);
});

test("the verdict names how many ranks are slow", () => {
  expect(verdict(new Map())).toBe("");
  expect(verdict(new Map([[0, Number.NaN]]))).toBe("");
  expect(verdict(new Map([[0, 1]]))).toBe("all ranks keep up");
  expect(verdict(new Map([[0, 1], [1, 2]]))).toBe("one rank holds the job back"); // biome-ignore format: a map
  expect(verdict(new Map([[0, 2], [1, 2]]))).toBe("2 ranks hold the job back"); // biome-ignore format: a map
});

test("the colour scale of the heat map", () => {
  const ratios = [undefined, Number.NaN, 0.9, 1.05, 1.15, 1.2, 3];
  expect(ratios.map(heat).join()).toBe("none,none,good,fair,near,bad,bad");
});
