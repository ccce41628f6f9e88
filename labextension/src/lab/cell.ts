/** The cell of a run, from what the store has of it: to be copied, and to be found in its notebook. Pure. */

import { NO_OPTIONS } from "../spec";

/** Fields of the spec that the list of options leaves out: `--name` comes first, and each `--conf` by itself. */
const APART = new Set<string>([...NO_OPTIONS, "name", "conf"]);

/** What the store writes in place of a secret. */
const MASKED = "***";

type Spec = Record<string, unknown>;

/** The cell with its magic line; an option that is not set is left out, and so is a setting whose value is secret. */
export function cellSource(spec: Spec): string {
  const words = ["%%distributed"];
  if (spec.name) words.push("--name", quoted(spec.name));
  for (const [option, value] of optionsOf(spec)) words.push(option, ...(value ? [quoted(value)] : []));
  for (const [key, value] of Object.entries((spec.conf ?? {}) as Spec)) {
    if (value !== MASKED) words.push("--conf", quoted(`${key}=${value}`));
  }
  return `${words.join(" ")}\n${String(spec.cell ?? "")}`;
}

/** The options that are set, as written in the cell, without name and settings of Spark; a flag has an empty value. */
export function optionsOf(spec: Spec): [string, string][] {
  return Object.entries(spec)
    .filter(([field, value]) => !APART.has(field) && value !== null && value !== undefined)
    .map(([field, value]) => [
      `--${value === false ? "no-" : ""}${field.replaceAll("_", "-")}`,
      Array.isArray(value) ? value.join(",") : typeof value === "boolean" ? "" : String(value),
    ]);
}

/** Where in a notebook the cell of a run is: the index of the likeliest of its cells' sources, or -1. */
export function findCell(sources: readonly string[], spec: Spec): number {
  const body = String(spec.cell ?? "").trim();
  const magic = sources.map((source) => /^\s*%%(ddl_)?distributed\b/.test(source));
  const same = sources.findIndex((source, i) => magic[i] && body !== "" && source.includes(body));
  if (same >= 0) return same;
  const named = (source: string) => /--name[= ]+(\S+)/.exec(source)?.[1] === spec.name;
  return sources.findIndex((source, i) => magic[i] && named(source));
}

/**
 * Where a notebook may be for Jupyter's contents, likeliest first. The store has its path on the machine of the kernel;
 * the server's root may be given with `~` for a home folder.
 */
export function contentsPaths(notebook: string, serverRoot: string): string[] {
  const parts = notebook.split("/").filter(Boolean);
  const suffixes = parts.map((_, i) => parts.slice(i).join("/"));
  const root = serverRoot.replace(/^~/, "").replace(/\/+$/, "");
  const at = root ? notebook.indexOf(`${root}/`) : -1;
  const below = at >= 0 ? [notebook.slice(at + root.length + 1)] : [];
  return [...new Set([...below, ...suffixes])];
}

function quoted(value: unknown): string {
  const words = String(value);
  return /^[\w@%+=:,./-]+$/.test(words) ? words : `'${words.replaceAll("'", `'"'"'`)}'`;
}
