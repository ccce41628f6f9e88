/** What differs between runs, as a table: how they ended, what they were told to do, where they ran. Pure. */

import type { RunDetails } from "../api";
import { optionsOf } from "../lab/cell";
import { elapsed } from "../panel/words";
import type { Translation } from "../translation";
import { duration, UNKNOWN } from "../view/format";
import type { RunModel } from "../view/model";

/** Digits of a metric: in a table people look for the small differences. */
const DIGITS = 5;

/** What stands for a flag, which has no value. */
const SET = "✓";

/** A run as far as it is known. */
export interface Known {
  letter: string;
  details: RunDetails | null;
  model: RunModel;
}

/** A row: a value a run, in their order. */
export interface Difference {
  name: string;
  values: string[];
  differs: boolean;
}

/** All rows: those that differ first, each part in the order of results, options, surroundings. */
export function differences(runs: readonly Known[], trans: Translation, now: number): Difference[] {
  const parts: Entry[][][] = [
    runs.map((run) => results(run, trans, now)),
    runs.map(options),
    runs.map((run) => sameCell(run, runs, trans)),
    runs.map((run) => surroundings(run, trans)),
  ];
  const rows = parts.flatMap(rowsOf);
  return [...rows.filter(({ differs }) => differs), ...rows.filter(({ differs }) => !differs)];
}

/** Rows of what each run has, in the order in which names first appear. */
export function rowsOf(entries: readonly Entry[][]): Difference[] {
  const tables = entries.map((each) => new Map(each));
  const names = [...new Set(tables.flatMap((table) => [...table.keys()]))];
  return names.map((name) => {
    const values = tables.map((table) => table.get(name) || UNKNOWN);
    return { name, values, differs: values.some((value) => value !== values[0]) };
  });
}

export type Entry = [name: string, value: string];

function results({ details, model }: Known, trans: Translation, now: number): Entry[] {
  const state = model.state?.state ?? details?.state ?? "";
  const entries: Entry[] = [[trans.__("state"), state]];
  if (details?.failure) entries.push([trans.__("failure"), details.failure]);
  if (details) entries.push([trans.__("duration"), duration(lasted(details, model, now))]);
  const epochs = model.progress && model.progress.fit >= 0 ? model.progress.epoch : details?.epoch;
  if (epochs !== undefined) entries.push([trans.__("epochs done"), String(epochs)]);
  const metrics = Object.keys(model.latest).length ? model.latest : (details?.metrics ?? {});
  return [...entries, ...measured(metrics)];
}

/** The metrics that have a value. */
export function measured(metrics: Readonly<Record<string, number | null>>): Entry[] {
  return Object.entries(metrics).flatMap(([name, value]): Entry[] =>
    value === null ? [] : [[name, String(Number(value.toPrecision(DIGITS)))]],
  );
}

/** The details are as old as their answer; the model hears when the run ends. */
function lasted(details: RunDetails, model: RunModel, now: number): number {
  return elapsed({ ...details, ended: details.ended ?? model.state?.ended ?? null }, now);
}

/** What the cell asked for. */
export function options({ details }: Pick<Known, "details">): Entry[] {
  if (!details) return [];
  const settings = Object.entries((details.spec.conf ?? {}) as Record<string, unknown>);
  const chosen = optionsOf(details.spec).map(([option, value]): Entry => [option, value || SET]);
  return [...chosen, ...settings.map(([key, value]): Entry => [`--conf ${key}`, String(value)])];
}

/** Who has the same cell as an earlier run says which one. */
function sameCell({ details }: Known, runs: readonly Known[], trans: Translation): Entry[] {
  if (!details) return [];
  const first = runs.find((run) => run.details?.cell === details.cell);
  return [[trans.__("cell as in"), first?.letter ?? ""]];
}

/** Where it ran, and what with. */
export function surroundings({ details }: Pick<Known, "details">, trans: Translation): Entry[] {
  if (!details) return [];
  const { cluster, notebook, versions, environment } = details;
  const words = (values: object) => Object.entries(values).filter(([, value]) => typeof value === "string");
  return [
    [trans.__("cluster"), cluster],
    [trans.__("notebook"), notebook],
    ...words(versions).map(([key, value]): Entry => [trans.__("cluster's %1", key), value]),
    ...words(environment).map(([key, value]): Entry => [trans.__("notebook's %1", key), value]),
  ];
}
