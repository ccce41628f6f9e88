import { expect, test } from "vitest";
import { isQuery, type ListFilter, listItems, NO_FILTER, parseFilter } from "../../src/panel/listfilter";
import { RunList } from "../../src/panel/runlist";
import { finished, NOW, page, run, search, trial, unreadable } from "./rows";

const ROWS = [
  finished("r1", { name: "mnist", loss: 0.3, labels: ["best"] }),
  run("r2", { name: "zebra", loss: 0.5 }),
  finished("r3", { name: "alpha", loss: null, ended: NOW + 3600 }),
  run("r4", { name: "higgs", loss: 0.1, cluster: "hdi-prod" }),
  unreadable("r5"),
];

const LIST = new RunList();
LIST.addPage(page("v1", ROWS));

const items = (list: RunList, filter: Partial<ListFilter>, ...unfolded: string[]) =>
  listItems(list, { ...NO_FILTER, ...filter }, new Set(unfolded), NOW);
const ids = (filter: Partial<ListFilter>) => items(LIST, filter).map(({ row }) => row.id);

test.each([
  ["live", ["r2", "r4", "r5", "r1", "r3"]],
  ["newest", ["r5", "r1", "r2", "r3", "r4"]],
  ["name", ["r3", "r4", "r1", "r5", "r2"]],
  ["loss", ["r4", "r1", "r2", "r5", "r3"]],
  ["longest", ["r3", "r4", "r2", "r1", "r5"]],
] as const)("by %s", (order, expected) => expect(ids({ order })).toEqual(expected));

test("a row contains all words", () => {
  expect(ids({ words: "hdi" })).toEqual(["r4"]);
  expect(ids({ words: "BEST finished" })).toEqual(["r1"]);
  expect(ids({ words: "best running" })).toEqual([]);
  expect(ids({ words: "damaged" })).toEqual(["r5"]);
});

test("only live runs", () => expect(ids({ live: true })).toEqual(["r2", "r4"]));

test("of a stored filter only the valid fields are used", () => {
  expect(parseFilter({ words: "a", live: true, order: "loss" })).toEqual({ words: "a", live: true, order: "loss" });
  expect(parseFilter({ words: 1, order: "none" })).toEqual(NO_FILTER);
  expect(parseFilter("a")).toEqual(NO_FILTER);
});

const SEARCHES = [search("s1"), search("s2", { name: "older", live: false, state: "FINISHED", created: NOW - 9000 })];
const TRIALS = [
  trial("r7", 7, "s1"),
  trial("r8", 8, "s1", { live: true, state: "RUNNING" }),
  trial("r9", 9, "s1", { name: "tuned_9_again" }),
  trial("r6", 0, "gone"),
];
const SEARCHED = new RunList();
SEARCHED.addPage(page("v1", [run("r1"), ...TRIALS], { searches: SEARCHES }));
const lines = (filter: Partial<ListFilter>, ...unfolded: string[]) =>
  items(SEARCHED, filter, ...unfolded).map((item) => `${item.search ? "  " : ""}${item.row.id}`);

test("trials are below their search once it is unfolded, and those of a deleted one are runs", () => {
  expect(lines({})).toEqual(["r1", "s1", "r6", "s2"]);
  expect(lines({}, "s1", "s2")).toEqual(["r1", "s1", "  r8", "  r7", "  r9", "r6", "s2"]);
  const [, first, , second] = items(SEARCHED, {}, "s1");
  expect([first?.expanded, first?.position, first?.size]).toEqual([true, 2, 4]);
  expect([second?.expanded, second?.position, second?.size]).toEqual([undefined, 2, 3]);
  expect(items(SEARCHED, {}).map(({ expanded }) => expanded)).toEqual([undefined, false, undefined, undefined]);
});

test("a search is there if it or one of its trials matches", () => {
  expect(lines({ words: "tuned running" })).toEqual(["s1"]);
  expect(lines({ words: "again" })).toEqual(["s1", "  r9"]);
  expect(lines({ words: "older" })).toEqual(["s2"]);
  expect(lines({ live: true }, "s1")).toEqual(["r1", "s1", "  r8"]);
});

test("what is a query", () => {
  for (const words of ["state:failed", "lr<0.1", "a -b", '"two words"', "-tag:x", "workers=4"]) {
    expect(isQuery(words), words).toBe(true);
  }
  for (const words of ["", "digits", "two words", "a-b", "a.ipynb"]) expect(isQuery(words), words).toBe(false);
});
