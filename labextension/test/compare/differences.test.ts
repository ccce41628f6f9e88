/** The table of what differs, by value. */

import { expect, test } from "vitest";
import type { RunDetails } from "../../src/api";
import { differences, type Known } from "../../src/compare/differences";
import { english } from "../../src/translation";
import { RunModel } from "../../src/view/model";
import { full, STATE } from "../messages";
import { finished, NOW, run } from "../panel/rows";

const SPEC = { run: "r1", name: "digits", cell: "fit()", strategy: "allreduce", workers: 2, seed: 7, rule: null };

function known(letter: string, spec: object = {}, fields: Partial<RunDetails> = {}, latest = {}): Known {
  const details = {
    ...finished("r1"),
    spec: { ...SPEC, ...spec },
    environment: { ddl_magics: "0.1.0", python: "3.11" },
    versions: { python: "3.8.10" },
    ...fields,
  } as RunDetails;
  const model = new RunModel();
  model.apply(full(1, { state: { ...STATE, state: details.state }, latest }));
  return { letter, details, model };
}

function table(...runs: Known[]): Record<string, string[]> {
  return Object.fromEntries(differences(runs, english, NOW).map(({ name, values }) => [name, values]));
}

const differing = (...runs: Known[]) =>
  differences(runs, english, NOW)
    .filter(({ differs }) => differs)
    .map(({ name }) => name);

test("equal runs differ in nothing", () => {
  expect(differing(known("A"), known("B"))).toEqual([]);
  expect(table(known("A"), known("B"))).toMatchObject({
    "--workers": ["2", "2"],
    "notebook's python": ["3.11", "3.11"],
  });
});

test("what differs comes first: results, options, surroundings", () => {
  const other = known(
    "B",
    { workers: 4, rule: "adag", conf: { "spark.cores": "2" } },
    { cluster: "hdi", cell: "other", ended: NOW + 60, environment: { ddl_magics: "0.1.0", python: "3.12" } },
    { loss: 0.5 },
  );
  const rows = differences([known("A", {}, {}, { loss: 0.25 }), other], english, NOW);
  const count = rows.filter(({ differs }) => differs).length;
  expect(rows.slice(0, count).map(({ name }) => name)).toEqual([
    "duration",
    "loss",
    "--workers",
    "--rule",
    "--conf spark.cores",
    "cell as in",
    "cluster",
    "notebook's python",
  ]);
  expect(rows.slice(count).every(({ differs, values }) => !differs && values[0] === values[1])).toBe(true);
  expect(rows.slice(0, count).map(({ values }) => values.join())).toContain("–,adag");
});

test("small differences of a metric are seen, those beyond five digits are none", () => {
  const row = (a: number, b: number) => table(known("A", {}, {}, { loss: a }), known("B", {}, {}, { loss: b })).loss;
  expect(row(0.13011, 0.13014)).toEqual(["0.13011", "0.13014"]);
  expect(differing(known("A", {}, {}, { loss: 0.1301101 }), known("B", {}, {}, { loss: 0.1301102 }))).toEqual([]);
});

test("a run that goes on has the model's state and values, and lasts until now", () => {
  const live = known("B", {}, { ...run("r3"), state: "RUNNING" }, { loss: 0.5 });
  expect(table(known("A"), live)).toMatchObject({
    state: ["FINISHED", "RUNNING"],
    duration: ["1:00", "3:00"],
    loss: ["–", "0.5"],
  });
});

test("cells are named by the first run that has them", () => {
  const runs = [known("A", {}, { cell: "x" }), known("B", {}, { cell: "y" }), known("C", {}, { cell: "x" })];
  expect(table(...runs)["cell as in"]).toEqual(["A", "B", "A"]);
});

test("a flag that is given is set", () => {
  expect(table(known("A", { spare: false }), known("B"))["--no-spare"]).toEqual(["✓", "–"]);
});

test("name, cell and id are no options", () => {
  const names = Object.keys(table(known("A"), known("B")));
  for (const name of ["--name", "--cell", "--run", "--rule"]) expect(names).not.toContain(name);
});
