import { expect, test } from "vitest";
import { RunList } from "../../src/panel/runlist";
import { answer, finished, run } from "./rows";

const ids = (list: RunList) => [...list.rows.keys()].sort();

test("pages add up, and the first one's version counts", () => {
  const list = new RunList();
  list.page(answer("v1", [run("r1")], { next: "c", total: 2 }));
  expect([list.incomplete, list.version, list.total]).toEqual([true, "v1", 2]);
  list.page(answer("v2", [run("r2")], { total: 2 }));
  expect([list.incomplete, list.version, ids(list)]).toEqual([false, "v1", ["r1", "r2"]]);
});

test("changes replace, remove, and tell who has ended", () => {
  const list = new RunList();
  list.page(answer("v1", [run("r1"), run("r2"), finished("r3")]));
  const ended = list.changes(answer("v2", [finished("r1"), run("r4"), finished("r5")], { removed: ["r3"], total: 4 }));
  expect(ended.map(({ id }) => id)).toEqual(["r1"]);
  expect([list.version, list.total, ids(list)]).toEqual(["v2", 4, ["r1", "r2", "r4", "r5"]]);
  expect(list.live().map(({ id }) => id)).toEqual(["r2", "r4"]);
});

test("pages that are asked for anew keep the rows until the last, and forget what is gone", () => {
  const list = new RunList();
  list.page(answer("v1", [run("r1"), run("r2")]));
  list.restart();
  expect(ids(list)).toEqual(["r1", "r2"]);
  list.page(answer("w1", [run("r3")], { next: "c" }));
  expect(ids(list)).toEqual(["r1", "r2", "r3"]);
  const ended = list.page(answer("w1", [finished("r2")]));
  expect([ids(list), ended.map(({ id }) => id)]).toEqual([["r2", "r3"], ["r2"]]);
});
