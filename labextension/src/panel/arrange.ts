/** Which rows are shown, and in which order. Pure. */

import type { Row } from "../api";
import { readable } from "./runlist";
import { elapsed, title } from "./words";

export const ORDERS = ["live", "newest", "name", "loss", "longest"] as const;

export type Order = (typeof ORDERS)[number];

/** What a reader wants to see of the list. */
export interface Wish {
  /** Each of these words is somewhere in the row. */
  words: string;
  /** Only what goes on. */
  live: boolean;
  order: Order;
}

export const EVERYTHING: Wish = { words: "", live: false, order: "live" };

/** The rows that fit the wish, in its order; equals stand newest first. */
export function arrange(rows: Iterable<Row>, wish: Wish, now: number): Row[] {
  const words = wish.words.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (row: Row) => (row.live || !wish.live) && (!words.length || has(row, words));
  const found = [...rows].filter(fits).map((row) => ({ row, key: key(row, wish.order, now) }));
  found.sort((a, b) => compare(a.key, b.key) || b.row.created - a.row.created || compare(b.row.id, a.row.id));
  return found.map(({ row }) => row);
}

function has(row: Row, words: string[]): boolean {
  const parts = readable(row)
    ? [row.id, row.name, row.title, ...row.labels, row.state, row.notebook, row.cluster]
    : [row.id, row.problem];
  const text = parts.join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** What rows are ordered by, the least first. What is not known comes last. */
function key(row: Row, order: Order, now: number): number | string {
  const known = readable(row);
  switch (order) {
    case "live":
      return row.live ? 0 : 1;
    case "newest":
      return 0;
    case "name":
      return title(row).toLowerCase();
    case "loss":
      return known && row.loss !== null ? row.loss : Number.POSITIVE_INFINITY;
    case "longest":
      return known ? -elapsed(row, now) : 1;
  }
}

function compare<T extends number | string>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
