/** The cell of a run, from its stored spec: to copy it, and to find it in its notebook. Pure. */

import { MASK, NOT_LISTED } from "./generated";

const isListed = (field: string) => !NOT_LISTED.some((name) => name === field);

/** `spec` of `RunDetails`. Versions of ddl_magics differ in the fields. */
export type Spec = Readonly<Record<string, unknown>>;

/** The cell with its magic line. Options that are not set and settings with a masked value are left out. */
export function cellSource(spec: Spec): string {
  const words = ["%%distributed"];
  if (spec.name) words.push("--name", quoted(spec.name));
  for (const [option, value] of optionsOf(spec)) words.push(option, ...(value ? [quoted(value)] : []));
  for (const [name, value] of parametersOf(spec)) words.push("--set", quoted(`${name}=${value}`));
  for (const [key, value] of sparkSettingsOf(spec)) {
    if (value !== MASK) words.push("--conf", quoted(`${key}=${value}`));
  }
  return `${words.join(" ")}\n${bodyOf(spec)}`;
}

/** The source of the cell below its magic line. */
export function bodyOf(spec: Spec): string {
  return String(spec.cell ?? "");
}

/** The options that are set, as written in the cell, except --name, --set and --conf. The value of a flag is empty. */
export function optionsOf(spec: Spec): [option: string, value: string][] {
  return Object.entries(spec)
    .filter(([field, value]) => isListed(field) && value !== null && value !== undefined)
    .map(([field, value]): [string, unknown] => [field, field === "workers" ? boundsOf(spec) : value])
    .map(([field, value]) => [
      `--${value === false ? "no-" : ""}${field.replaceAll("_", "-")}`,
      Array.isArray(value) ? value.join(",") : typeof value === "boolean" ? "" : String(value),
    ]);
}

/** The value of --workers: "4", or "2..4". */
function boundsOf({ min_workers: least, workers }: Spec): unknown {
  return least == null ? workers : `${least}..${workers}`;
}

/** The values of --conf. */
export function sparkSettingsOf({ conf }: Spec): [key: string, value: string][] {
  return pairsOf(conf);
}

/** The values of --set. */
export function parametersOf({ set }: Spec): [name: string, value: string][] {
  return pairsOf(set);
}

function pairsOf(values: unknown): [key: string, value: string][] {
  if (typeof values !== "object" || values === null) return [];
  return Object.entries(values).map(([key, value]) => [key, String(value)]);
}

/** The index of the run's cell among the sources of a notebook's cells: by its source, else by its name; else -1. */
export function findCell(sources: readonly string[], spec: Spec): number {
  const body = bodyOf(spec).trim();
  const isMagic = sources.map((source) => /^\s*%%(ddl_)?distributed\b/.test(source));
  const sameSource = sources.findIndex((source, i) => isMagic[i] && body !== "" && source.includes(body));
  if (sameSource >= 0) return sameSource;
  const sameName = (source: string) => /--name[= ]+(\S+)/.exec(source)?.[1] === spec.name;
  return sources.findIndex((source, i) => isMagic[i] && sameName(source));
}

/**
 * Paths at which Jupyter's contents may have a notebook, likeliest first.
 *
 * @param notebook path on the kernel's machine
 * @param serverRoot the server's root folder; `~` stands for the home folder
 */
export function contentsPaths(notebook: string, serverRoot: string): string[] {
  const parts = notebook.split("/").filter(Boolean);
  const suffixes = parts.map((_, i) => parts.slice(i).join("/"));
  const root = serverRoot.replace(/^~/, "").replace(/\/+$/, "");
  const at = root ? notebook.indexOf(`${root}/`) : -1;
  const belowRoot = at >= 0 ? [notebook.slice(at + root.length + 1)] : [];
  return [...new Set([...belowRoot, ...suffixes])];
}

/** Quotes a value for the magic line, as a shell does. */
function quoted(value: unknown): string {
  const text = String(value);
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}
