/** What differs between runs, as a table: how they ended, what they were told to do, where they ran. Pure. */

import type { RunDetails } from "../api";
import { optionsOf } from "../lab/cell";
import { elapsed } from "../panel/words";
import type { Translation } from "../translation";
import { duration, UNKNOWN } from "../view/format";
import type { RunModel } from "../view/model";

/** Digits of a metric: in a table people look for the small differences. */
const DIGITS = 5;

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
  const tables = runs.map(
    (run) => new Map([...results(run, trans, now), ...options(run), ...surroundings(run, trans)]),
  );
  const cells = runs.map(({ details }) => details?.cell);
  tables.forEach((table, i) => {
    // Who has the same cell as an earlier run says which one.
    const first = cells[i] === undefined ? -1 : cells.indexOf(cells[i]);
    if (first >= 0) table.set(trans.__("cell as in"), runs[first]?.letter ?? UNKNOWN);
  });
  const names = [...new Set(tables.flatMap((table) => [...table.keys()]))];
  const rows = names.map((name): Difference => {
    const values = tables.map((table) => table.get(name) || UNKNOWN);
    return { name, values, differs: values.some((value) => value !== values[0]) };
  });
  return [...rows.filter(({ differs }) => differs), ...rows.filter(({ differs }) => !differs)];
}

type Entry = [name: string, value: string];

function results({ details, model }: Known, trans: Translation, now: number): Entry[] {
  const state = model.state?.state ?? details?.state ?? "";
  const entries: Entry[] = [[trans.__("state"), state]];
  if (details?.failure) entries.push([trans.__("failure"), details.failure]);
  if (details) entries.push([trans.__("duration"), duration(lasted(details, model, now))]);
  const epochs = model.progress && model.progress.fit >= 0 ? model.progress.epoch : details?.epoch;
  if (epochs !== undefined) entries.push([trans.__("epochs done"), String(epochs)]);
  const metrics = Object.keys(model.latest).length ? model.latest : (details?.metrics ?? {});
  for (const [name, value] of Object.entries(metrics)) {
    if (value !== null) entries.push([name, String(Number(value.toPrecision(DIGITS)))]);
  }
  return entries;
}

/** The details are as old as their answer; the model hears when the run ends. */
function lasted(details: RunDetails, model: RunModel, now: number): number {
  return elapsed({ ...details, ended: details.ended ?? model.state?.ended ?? null }, now);
}

function options({ details }: Known): Entry[] {
  if (!details) return [];
  const settings = Object.entries((details.spec.conf ?? {}) as Record<string, unknown>);
  return [...optionsOf(details.spec), ...settings.map(([key, value]): Entry => [`--conf ${key}`, String(value)])];
}

function surroundings({ details }: Known, trans: Translation): Entry[] {
  if (!details) return [];
  const environment = Object.entries(details.environment).filter(([, value]) => typeof value === "string");
  return [
    [trans.__("cluster"), details.cluster],
    [trans.__("notebook"), details.notebook],
    ...environment.map(([key, value]): Entry => [trans.__("notebook's %1", key), String(value)]),
  ];
}
