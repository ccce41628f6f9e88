// @vitest-environment jsdom
import { expect, test } from "vitest";
import type { RunDetails } from "../../src/generated";
import { changedRows, changeNodes, previousRun } from "../../src/run/changestab";
import { english } from "../../src/translation";
import { texts } from "../dom";
import { details, finished, unreadable } from "../panel/rows";

function run(id: string, spec: object = {}, fields: Partial<RunDetails> = {}): RunDetails {
  const usual = { cell: "a\nb\n", workers: 4, seed: 1, name: "digits" };
  return details(id, { environment: { python: "3.11" }, spec: { ...usual, ...spec }, ...fields });
}

/** The tab, and the ids of the runs that a click on each of its buttons opens or compares. */
async function draw(after: RunDetails, ...stored: RunDetails[]): Promise<[tab: HTMLElement, clicked: string[]]> {
  const clicked: string[] = [];
  const nodes = await changeNodes(after, {
    rows: () => [after, ...stored],
    details: async (id) => stored.find((known) => known.id === id) ?? after,
    actions: { openRun: (id) => clicked.push(id), compare: (ids) => clicked.push(...ids) },
    trans: english,
  });
  const tab = document.createElement("div");
  tab.append(...nodes);
  for (const button of tab.querySelectorAll("button")) button.click();
  return [tab, clicked];
}

test("the previous run is the newest earlier one of the same name and notebook", () => {
  const newest = finished("r1");
  const others = [
    finished("r0"),
    finished("r3"),
    finished("r2", { name: "other" }),
    finished("r2", { notebook: "b.ipynb" }),
    finished("r4"),
    unreadable("r5"),
  ];
  expect(previousRun(newest, [newest, ...others])?.id).toBe("r3");
  expect(previousRun(newest, [newest])).toBeUndefined();
});

test("a run of the same cell is preferred to a newer one of the same name", () => {
  const cell = (id: string, cell_id: string, fields = {}) => finished(id, { cell_id, ...fields });
  const newest = cell("r1", "A");
  const named = cell("r2", "B");
  expect(previousRun(newest, [named, cell("r3", "A", { name: "other" })])?.id).toBe("r3");
  expect(previousRun(newest, [named, cell("r3", "A", { notebook: "b.ipynb" })])?.id).toBe("r2");
  expect(previousRun(cell("r1", ""), [cell("r2", "", { name: "other" }), cell("r3", "B")])?.id).toBe("r3");
});

test("the table has the options and the environment that differ", () => {
  const after = run("r1", { workers: 8, conf: { "spark.cores.max": "2" } }, { cluster: "hdi" });
  expect(changedRows(run("r2"), after, english).map(({ name, values }) => [name, ...values])).toEqual([
    ["--workers", "4", "8"],
    ["--conf spark.cores.max", "–", "2"],
    ["cluster", "this machine", "hdi"],
  ]);
});

test("lines and options are side by side, and both runs can be opened", async () => {
  const [tab, clicked] = await draw(run("r1", { cell: "a\nc\n", workers: 2 }), run("r2"));
  expect(tab.textContent).toContain("1 line removed, 1 line added");
  expect(texts("tbody tr", tab)).toEqual(["--workers42"]);
  expect(clicked).toEqual(["r2", "r2", "r1"]);
});

test("without a difference, or without a previous run, there is a message", async () => {
  const [equal] = await draw(run("r1"), run("r2"));
  expect(equal.textContent).toContain("No differences.");
  const [first] = await draw(run("r1"));
  expect(first.textContent).toContain("no earlier run");
});
