/** Filters and sorts the rows of the list, and puts the trials of a search below it. Pure. */

import type { Listed } from "../api";
import type { RunRow, SearchRow } from "../generated";
import { elapsed, title, wordOf } from "./format";
import { isReadable, isSearch, type RunList } from "./runlist";

export const ORDERS = ["live", "newest", "name", "loss", "longest"] as const;

export type Order = (typeof ORDERS)[number];

export interface ListFilter {
  /** Words that must all occur in a row, or a query, which the server understands. */
  words: string;
  /** Only runs that have not ended. */
  live: boolean;
  order: Order;
}

export const NO_FILTER: ListFilter = { words: "", live: false, order: "live" };

/** Whether the words are a query: `state:failed`, `loss<0.5`, `-tag:old`, `"two words"`. */
export function isQuery(words: string): boolean {
  return /[:<>="]|(^|\s)-\S/.test(words);
}

/** The filter of an earlier session; what is not valid is replaced by the default. */
export function parseFilter(stored: unknown): ListFilter {
  const { words, live, order }: Partial<Record<keyof ListFilter, unknown>> =
    typeof stored === "object" && stored !== null ? stored : {};
  return {
    words: typeof words === "string" ? words : NO_FILTER.words,
    live: typeof live === "boolean" ? live : NO_FILTER.live,
    order: parseOrder(order),
  };
}

/** The order with this name, or the default. */
export function parseOrder(name: unknown): Order {
  return ORDERS.find((order) => order === name) ?? NO_FILTER.order;
}

/** A line of the list. */
export interface ListItem {
  row: Listed;
  /** The search that the row is a trial of, if it stands below it. */
  search: SearchRow | null;
  /** Whether the trials of a search stand below it; undefined for a run, and for a search without trials. */
  expanded?: boolean;
  /** Place among the rows beside it, from 1, and their number. */
  position: number;
  size: number;
}

/**
 * The rows that match the filter, in its order; equal ones are sorted newest first. A search is there if it matches, with
 * all of its trials, or if a trial does, with these trials.
 *
 * @param unfolded the ids of the searches whose trials are shown
 * @param found the ids that match, where the words are a query; null while they are not known
 */
export function listItems(
  list: Pick<RunList, "rows" | "searches" | "searchOf">,
  filter: ListFilter,
  unfolded: ReadonlySet<string>,
  now: number,
  found: ReadonlySet<string> | null = null,
): ListItem[] {
  const query = isQuery(filter.words);
  const words = query ? [] : filter.words.toLowerCase().split(/\s+/).filter(Boolean);
  const trials = new Map<string, RunRow[]>([...list.searches.keys()].map((id) => [id, []]));
  const top: Listed[] = [...list.searches.values()];
  for (const row of list.rows.values()) {
    const search = list.searchOf(row);
    if (search === null) top.push(row);
    else if (isReadable(row)) trials.get(search.id)?.push(row);
  }
  const matches = (row: Listed) => (query ? !found || found.has(row.id) : !words.length || contains(row, words));
  const isLive = (row: Listed) => row.live || !filter.live;
  const below = (search: SearchRow) => {
    const whole = matches(search);
    return (trials.get(search.id) ?? []).filter((trial) => isLive(trial) && (whole || matches(trial)));
  };
  const shown = top.filter((row) => isLive(row) && (matches(row) || (isSearch(row) && below(row).length > 0)));
  return placed(sorted(shown, filter.order, now), null).flatMap((item) => {
    if (!isSearch(item.row)) return [item];
    const found = below(item.row);
    if (!found.length) return [item];
    const expanded = unfolded.has(item.row.id) || !matches(item.row);
    return [{ ...item, expanded }, ...(expanded ? placed(sorted(found, filter.order, now), item.row) : [])];
  });
}

function sorted(rows: readonly Listed[], order: Order, now: number): Listed[] {
  const keyed = rows.map((row) => ({ row, key: sortKey(row, order, now) }));
  keyed.sort((a, b) => compare(a.key, b.key) || b.row.created - a.row.created || compare(b.row.id, a.row.id));
  return keyed.map(({ row }) => row);
}

function placed(rows: readonly Listed[], search: SearchRow | null): ListItem[] {
  return rows.map((row, i) => ({ row, search, position: i + 1, size: rows.length }));
}

function contains(row: Listed, words: string[]): boolean {
  const text = wordsOf(row).join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function wordsOf(row: Listed): string[] {
  if (isSearch(row)) return [row.id, row.name, row.state, row.notebook, row.cluster];
  if (!isReadable(row)) return [row.id, row.problem];
  return [row.id, row.name, row.title, ...row.labels, row.state, wordOf(row), row.notebook, row.cluster];
}

/** The key to sort by, ascending; an unknown value comes last. */
function sortKey(row: Listed, order: Order, now: number): number | string {
  switch (order) {
    case "live":
      return row.live ? 0 : 1;
    case "newest":
      return 0;
    case "name":
      return title(row).toLowerCase();
    case "loss":
      return lossOf(row) ?? Number.POSITIVE_INFINITY;
    case "longest":
      return isSearch(row) || isReadable(row) ? -elapsed(row, now) : 1;
  }
}

function lossOf(row: Listed): number | null {
  return !isSearch(row) && isReadable(row) ? row.loss : null;
}

function compare<T extends number | string>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
