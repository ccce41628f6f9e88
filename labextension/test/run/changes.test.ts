// @vitest-environment jsdom
import { expect, test } from "vitest";
import type { RunDetails } from "../../src/api";
import { changed, changeParts, previous } from "../../src/run/changes";
import { english } from "../../src/translation";
import { finished, unreadable } from "../panel/rows";

function details(id: string, spec: object = {}, fields: Partial<RunDetails> = {}): RunDetails {
  const more = {
    cause: null,
    versions: {},
    place: {},
    owner: {},
    files: [],
    size: 10,
    stop_requested: false,
    stop: null,
  };
  const usual = { cell: "a\nb\n", workers: 4, seed: 1, name: "digits" };
  return { ...finished(id), ...more, environment: { python: "3.11" }, spec: { ...usual, ...spec }, ...fields };
}

async function draw(after: RunDetails, ...stored: RunDetails[]): Promise<HTMLElement> {
  const told: string[] = [];
  const nodes = await changeParts(after, {
    rows: () => [after, ...stored],
    details: async (id) => stored.find((one) => one.id === id) as RunDetails,
    actions: { openRun: (run) => told.push(run), compare: (runs) => told.push(...runs) },
    trans: english,
  });
  const element = document.createElement("div");
  element.append(...nodes);
  for (const button of element.querySelectorAll("button")) button.click();
  element.dataset.told = told.join();
  return element;
}

test("the run before is the newest earlier one of its name and notebook", () => {
  const run = finished("r1");
  const others = [
    finished("r0"),
    finished("r3"),
    finished("r2", { name: "other" }),
    finished("r2", { notebook: "b.ipynb" }),
    finished("r4"),
    unreadable("r5"),
  ];
  expect(previous(run, [run, ...others])?.id).toBe("r3");
  expect(previous(run, [run])).toBeUndefined();
});

test("a run of the same cell comes before one of the same name, if that is later", () => {
  const cell = (id: string, cell_id: string, fields = {}) => finished(id, { cell_id, ...fields });
  const run = cell("r1", "A");
  const named = cell("r2", "B");
  expect(previous(run, [named, cell("r3", "A", { name: "other" })])?.id).toBe("r3");
  expect(previous(run, [named, cell("r3", "A", { notebook: "b.ipynb" })])?.id).toBe("r2");
  expect(previous(cell("r1", ""), [cell("r2", "", { name: "other" }), cell("r3", "B")])?.id).toBe("r3");
});

test("options and surroundings that differ are told", () => {
  const after = details("r1", { workers: 8, conf: { "spark.cores.max": "2" } }, { cluster: "hdi" });
  expect(changed(details("r2"), after, english).map(({ name, values }) => [name, ...values])).toEqual([
    ["--workers", "4", "8"],
    ["--conf spark.cores.max", "–", "2"],
    ["cluster", "this machine", "hdi"],
  ]);
});

test("lines and options stand side by side, and both runs can be seen", async () => {
  const drawn = await draw(details("r1", { cell: "a\nc\n", workers: 2 }), details("r2"));
  expect(drawn.textContent).toContain("1 line removed, 1 line added");
  expect([...drawn.querySelectorAll("tbody tr")].map((row) => row.textContent)).toEqual(["--workers42"]);
  expect(drawn.dataset.told).toBe("r2,r2,r1");
});

test("where nothing differs, or there is none before, that is said", async () => {
  expect((await draw(details("r1"), details("r2"))).textContent).toContain("Nothing differs.");
  expect((await draw(details("r1"))).textContent).toContain("no earlier run");
});
