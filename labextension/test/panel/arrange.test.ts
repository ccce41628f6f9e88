import { expect, test } from "vitest";
import { arrange, EVERYTHING, type Wish } from "../../src/panel/arrange";
import { finished, NOW, run, unreadable } from "./rows";

const ROWS = [
  finished("r1", { name: "mnist", loss: 0.3, labels: ["best"] }),
  run("r2", { name: "zebra", loss: 0.5 }),
  finished("r3", { name: "alpha", loss: null, ended: NOW + 3600 }),
  run("r4", { name: "higgs", loss: 0.1, cluster: "hdi-prod" }),
  unreadable("r5"),
];

const ids = (wish: Partial<Wish>) => arrange(ROWS, { ...EVERYTHING, ...wish }, NOW).map(({ id }) => id);

test.each([
  ["live", ["r2", "r4", "r5", "r1", "r3"]],
  ["newest", ["r5", "r1", "r2", "r3", "r4"]],
  ["name", ["r3", "r4", "r1", "r5", "r2"]],
  ["loss", ["r4", "r1", "r2", "r5", "r3"]],
  ["longest", ["r3", "r4", "r2", "r1", "r5"]],
] as const)("by %s", (order, expected) => expect(ids({ order })).toEqual(expected));

test("every word is somewhere", () => {
  expect(ids({ words: "hdi" })).toEqual(["r4"]);
  expect(ids({ words: "BEST finished" })).toEqual(["r1"]);
  expect(ids({ words: "best running" })).toEqual([]);
  expect(ids({ words: "damaged" })).toEqual(["r5"]);
});

test("what goes on alone", () => expect(ids({ live: true })).toEqual(["r2", "r4"]));
