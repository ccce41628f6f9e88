import { expect, test } from "vitest";
import { RunList } from "../../src/panel/runlist";
import { finished, page, run, search, trial } from "./rows";

const ids = (list: RunList) => [...list.rows.keys()].sort();

test("pages add up, and the version is that of the first", () => {
  const list = new RunList();
  list.addPage(page("v1", [run("r1")], { next: "c", total: 2 }));
  expect([list.incomplete, list.version, list.total]).toEqual([true, "v1", 2]);
  list.addPage(page("v2", [run("r2")], { total: 2 }));
  expect([list.incomplete, list.version, ids(list)]).toEqual([false, "v1", ["r1", "r2"]]);
});

test("changes replace and remove rows, and return the runs that have ended", () => {
  const list = new RunList();
  list.addPage(page("v1", [run("r1"), run("r2"), finished("r3")]));
  const ended = list.applyChanges(
    page("v2", [finished("r1"), run("r4"), finished("r5")], { removed: ["r3"], total: 4 }),
  );
  expect(ended.map(({ id }) => id)).toEqual(["r1"]);
  expect([list.version, list.total, ids(list)]).toEqual(["v2", 4, ["r1", "r2", "r4", "r5"]]);
  expect(list.live().map(({ id }) => id)).toEqual(["r2", "r4"]);
});

test("after a restart rows stay until the last page, which removes the others", () => {
  const list = new RunList();
  list.addPage(page("v1", [run("r1"), run("r2")]));
  list.restart();
  expect(ids(list)).toEqual(["r1", "r2"]);
  list.addPage(page("w1", [run("r3")], { next: "c" }));
  expect(ids(list)).toEqual(["r1", "r2", "r3"]);
  const ended = list.addPage(page("w1", [finished("r2")]));
  expect([ids(list), ended.map(({ id }) => id)]).toEqual([["r2", "r3"], ["r2"]]);
});

test("a search is one piece of work: its end is told, and those of its trials are not", () => {
  const list = new RunList();
  const running = { live: true, state: "RUNNING" } as const;
  list.addPage(page("v1", [run("r1"), trial("r2", 0, "s1", running)], { searches: [search("s1")] }));
  expect(list.liveWork().map(({ id }) => id)).toEqual(["r1", "s1"]);
  const over = search("s1", { live: false, state: "FINISHED" });
  const ended = list.applyChanges(page("v2", [trial("r2", 0, "s1")], { searches: [over] }));
  expect(ended.map(({ id }) => id)).toEqual(["s1"]);
  list.applyChanges(page("v3", [], { removed: ["s1"] }));
  expect([list.searches.size, list.get("s1"), list.get("r2")?.id]).toEqual([0, undefined, "r2"]);
  list.restart();
  list.addPage(page("w1", [], { searches: [search("s2")] }));
  expect([...list.searches.keys()]).toEqual(["s2"]);
});
