import { expect, test } from "vitest";
import { differences, type RunToCompare } from "../../src/compare/differences";
import type { RunDetails } from "../../src/generated";
import { english } from "../../src/translation";
import { RunModel } from "../../src/view/model";
import { full, STATE } from "../messages";
import { details, NOW, run } from "../panel/rows";

const SPEC = { run: "r1", name: "digits", cell: "fit()", strategy: "allreduce", workers: 2, seed: 7, rule: null };

function known(letter: string, spec: object = {}, fields: Partial<RunDetails> = {}, latest = {}): RunToCompare {
  const found = details("r1", {
    spec: { ...SPEC, ...spec },
    environment: { ddl_magics: "0.1.0", python: "3.11" },
    versions: { python: "3.8.10" },
    ...fields,
  });
  const model = new RunModel();
  model.apply(full(1, { state: { ...STATE, state: found.state }, latest }));
  return { letter, details: found, model };
}

function table(...runs: RunToCompare[]): Record<string, string[]> {
  return Object.fromEntries(differences(runs, english, NOW).map(({ name, values }) => [name, values]));
}

const differing = (...runs: RunToCompare[]) =>
  differences(runs, english, NOW)
    .filter(({ differs }) => differs)
    .map(({ name }) => name);

test("equal runs have no differences", () => {
  expect(differing(known("A"), known("B"))).toEqual([]);
  expect(table(known("A"), known("B"))).toMatchObject({
    "--workers": ["2", "2"],
    "notebook's python": ["3.11", "3.11"],
  });
});

test("differences come first, in the order results, options, environment", () => {
  const other = known(
    "B",
    { workers: 4, rule: "adag", conf: { "spark.cores": "2" } },
    { cluster: "hdi", cell_hash: "other", ended: NOW + 60, environment: { ddl_magics: "0.1.0", python: "3.12" } },
    { loss: 0.5 },
  );
  const rows = differences([known("A", {}, {}, { loss: 0.25 }), other], english, NOW);
  const count = rows.filter(({ differs }) => differs).length;
  expect(rows.slice(0, count).map(({ name }) => name)).toEqual([
    "time trained",
    "time with waiting",
    "loss",
    "--workers",
    "--rule",
    "--conf spark.cores",
    "same cell as",
    "cluster",
    "notebook's python",
  ]);
  expect(rows.slice(count).every(({ differs, values }) => !differs && values[0] === values[1])).toBe(true);
  expect(rows.slice(0, count).map(({ values }) => values.join())).toContain("–,adag");
});

test("metrics are compared with five digits", () => {
  const row = (a: number, b: number) => table(known("A", {}, {}, { loss: a }), known("B", {}, {}, { loss: b })).loss;
  expect(row(0.13011, 0.13014)).toEqual(["0.13011", "0.13014"]);
  expect(differing(known("A", {}, {}, { loss: 0.1301101 }), known("B", {}, {}, { loss: 0.1301102 }))).toEqual([]);
});

test("a live run has the state and values of its model, and lasts until now", () => {
  const live = known("B", {}, { ...run("r3"), state: "RUNNING" }, { loss: 0.5 });
  expect(table(known("A"), live)).toMatchObject({
    state: ["FINISHED", "RUNNING"],
    "time with waiting": ["1:00", "3:00"],
    loss: ["–", "0.5"],
  });
});

test("equal cells have the letter of the first run that has them", () => {
  const runs = [
    known("A", {}, { cell_hash: "x" }),
    known("B", {}, { cell_hash: "y" }),
    known("C", {}, { cell_hash: "x" }),
  ];
  expect(table(...runs)["same cell as"]).toEqual(["A", "B", "A"]);
});

test("a flag has no value but is set", () => {
  expect(table(known("A", { prewarm: false }), known("B"))["--no-prewarm"]).toEqual(["✓", "–"]);
});
