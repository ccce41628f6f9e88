/** The differences between runs as rows of a table: results, options, environment. Pure. */

import { optionsOf, parametersOf, sparkSettingsOf } from "../cell";
import type { RunDetails } from "../generated";
import type { Translation } from "../translation";
import { duration, UNKNOWN } from "../view/format";
import type { RunModel } from "../view/model";
import { stateWord } from "../view/phases";

/** Significant digits of a metric: more than in a chart, because small differences matter here. */
const DIGITS = 5;

/** The value of a flag that is set. */
const SET = "✓";

export interface RunToCompare {
  letter: string;
  details: RunDetails | null;
  model: RunModel;
}

/** A row of the table, with one value per run. */
export interface Difference {
  name: string;
  values: string[];
  differs: boolean;
}

export type Entry = [name: string, value: string];

/** All rows: first those that differ; both parts in the order results, options, environment. */
export function differences(runs: readonly RunToCompare[], trans: Translation, now: number): Difference[] {
  const parts: Entry[][][] = [
    runs.map((run) => resultEntries(run, trans, now)),
    runs.map(optionEntries),
    runs.map((run) => cellEntries(run, runs, trans)),
    runs.map((run) => environmentEntries(run, trans)),
  ];
  const rows = parts.flatMap(rowsOf);
  return [...rows.filter(({ differs }) => differs), ...rows.filter(({ differs }) => !differs)];
}

/** One row per name in the entries of the runs, in the order in which the names first occur. */
export function rowsOf(entries: readonly Entry[][]): Difference[] {
  const tables = entries.map((ofRun) => new Map(ofRun));
  const names = [...new Set(tables.flatMap((table) => [...table.keys()]))];
  return names.map((name) => {
    const values = tables.map((table) => table.get(name) || UNKNOWN);
    return { name, values, differs: values.some((value) => value !== values[0]) };
  });
}

function resultEntries({ details, model }: RunToCompare, trans: Translation, now: number): Entry[] {
  const state = model.state?.state ?? details?.state ?? "";
  const entries: Entry[] = [[trans.__("state"), stateWord(state)]];
  if (details?.failure) entries.push([trans.__("failure"), details.failure]);
  if (details) {
    // The model knows of the end earlier than the details, which are polled less often.
    const ended = details.ended ?? model.state?.ended ?? null;
    entries.push(...timeEntries(details.created, model.state?.started ?? null, ended ?? now, trans));
  }
  const epochs = model.progress && model.progress.fit >= 0 ? model.progress.epoch : details?.epoch;
  if (epochs !== undefined) entries.push([trans.__("epochs done"), String(epochs)]);
  const metrics = Object.keys(model.latest).length ? model.latest : (details?.metrics ?? {});
  return [...entries, ...metricEntries(metrics)];
}

/** How long a run has trained, and how long it took with what it waited for before. Times in seconds. */
export function timeEntries(created: number, started: number | null, end: number, trans: Translation): Entry[] {
  const whole: Entry = [trans.__("time with waiting"), duration(Math.max(0, end - created))];
  return started === null ? [whole] : [[trans.__("time trained"), duration(Math.max(0, end - started))], whole];
}

/** The metrics that have a value. */
export function metricEntries(metrics: Readonly<Record<string, number | null>>): Entry[] {
  return Object.entries(metrics).flatMap(([name, value]): Entry[] =>
    value === null ? [] : [[name, String(Number(value.toPrecision(DIGITS)))]],
  );
}

/** The options of the cell. */
export function optionEntries({ details }: Pick<RunToCompare, "details">): Entry[] {
  if (!details) return [];
  const options = optionsOf(details.spec).map(([option, value]): Entry => [option, value || SET]);
  const parameters = parametersOf(details.spec).map(([name, value]): Entry => [`--set ${name}`, value]);
  const settings = sparkSettingsOf(details.spec).map(([key, value]): Entry => [`--conf ${key}`, value]);
  return [...options, ...parameters, ...settings];
}

/** The letter of the first run with the same cell. */
function cellEntries({ details }: RunToCompare, runs: readonly RunToCompare[], trans: Translation): Entry[] {
  if (!details) return [];
  const first = runs.find((run) => run.details?.cell_hash === details.cell_hash);
  return [[trans.__("same cell as"), first?.letter ?? ""]];
}

/** Cluster, notebook and versions. */
export function environmentEntries({ details }: Pick<RunToCompare, "details">, trans: Translation): Entry[] {
  if (!details) return [];
  const { cluster, notebook, versions, environment } = details;
  return [
    [trans.__("cluster"), cluster],
    [trans.__("notebook"), notebook],
    ...textEntries(versions, (key) => trans.__("cluster's %1", key)),
    ...textEntries(environment, (key) => trans.__("notebook's %1", key)),
  ];
}

function textEntries(values: Readonly<Record<string, unknown>>, titleOf: (key: string) => string): Entry[] {
  return Object.entries(values).flatMap(([key, value]): Entry[] =>
    typeof value === "string" ? [[titleOf(key), value]] : [],
  );
}
