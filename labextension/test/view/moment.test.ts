import { expect, test } from "vitest";
import { RunModel } from "../../src/view/model";
import { atStep, atTime } from "../../src/view/moment";
import { full, type Point } from "../messages";

function model(lines: Record<string, Point[]>): RunModel {
  const made = new RunModel();
  made.apply(full(1, { lines: Object.fromEntries(Object.entries(lines).map(([key, points]) => [key, { points }])) }));
  return made;
}

const EPOCHS: Point[] = [[0, 0], [100, 1], [200, 2]]; // biome-ignore format: one line
const SECONDS: Point[] = [[0, 20], [200, 40]]; // biome-ignore format: one line

test("a place on a chart has its epoch and its time", () => {
  const known = model({ epoch: EPOCHS, seconds: SECONDS });
  expect(atStep(known, 150)).toBe("epoch 1.5 · at 0:35");
  expect(atTime(known, 35)).toBe("at 0:35 · epoch 1.5");
});

test("what is not known is left out", () => {
  expect(atStep(model({}), 150.4)).toBe("step 150");
  expect(atStep(model({ seconds: SECONDS }), 100)).toBe("step 100 · at 0:30");
  const waited = model({ epoch: EPOCHS, seconds: SECONDS });
  expect([atTime(waited, 5), atTime(waited, 60), atTime(model({}), 5)]).toEqual(["at 0:05", "at 1:00", "at 0:05"]);
});
