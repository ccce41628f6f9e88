/** The runs and searches that a page knows, built from the server's answers. Pure. */

import type { Listed, Row } from "../api";
import type { RunPage, RunRow, SearchRow, UnreadableRun } from "../generated";

export class RunList {
  /** Rows by id. A row is replaced, never changed, so that identity tells whether it is the newest. */
  readonly rows = new Map<string, Row>();
  /** Searches by id. */
  readonly searches = new Map<string, SearchRow>();
  /** Number of runs in the store; `rows` has fewer while pages are missing. */
  total = 0;
  /** Folder of the runs on the server's machine. */
  store = "";
  /** Version from which to ask for changes; empty if the pages have to be read first. */
  version = "";
  /** Cursor of the next page; null after the last. */
  next: string | null = null;
  /** Ids in the pages since the last restart. */
  private listed = new Set<string>();

  /** Whether there are pages left to read. */
  get incomplete(): boolean {
    return this.version === "" || this.next !== null;
  }

  /** Starts over with the first page; the rows stay until the pages replace them. */
  restart(): void {
    this.version = "";
    this.next = null;
  }

  /** Adds a page. Returns the runs and searches that have ended since they were last known, without trials. */
  addPage(page: RunPage): (RunRow | SearchRow)[] {
    if (this.version === "") {
      this.version = page.version;
      this.listed = new Set();
      const found = new Set(page.searches.map(({ id }) => id));
      for (const id of this.searches.keys()) if (!found.has(id)) this.searches.delete(id);
    }
    this.next = page.next;
    for (const { id } of page.runs) this.listed.add(id);
    const ended = this.addRows(page);
    if (this.next === null) {
      for (const id of this.rows.keys()) if (!this.listed.has(id)) this.rows.delete(id);
    }
    return ended;
  }

  /** Applies changes. Returns the same. */
  applyChanges(changes: RunPage): (RunRow | SearchRow)[] {
    this.version = changes.version;
    for (const id of changes.removed) {
      this.rows.delete(id);
      this.searches.delete(id);
    }
    return this.addRows(changes);
  }

  /** The run or the search with this id. */
  get(id: string): Listed | undefined {
    return this.searches.get(id) ?? this.rows.get(id);
  }

  /** The runs that have not ended, newest first. */
  live(): RunRow[] {
    return [...this.rows.values()].filter(isLive).sort((a, b) => b.created - a.created);
  }

  /** The searches and the runs that are no trials of them, of those that have not ended, newest first. */
  liveWork(): (RunRow | SearchRow)[] {
    const searches = [...this.searches.values()].filter(({ live }) => live);
    const runs = this.live().filter((run) => this.searchOf(run) === null);
    return [...searches, ...runs].sort((a, b) => b.created - a.created);
  }

  /** The search that a run is a trial of, if it is listed. */
  searchOf(row: Row): SearchRow | null {
    return (isReadable(row) && row.parent !== null && this.searches.get(row.parent)) || null;
  }

  private addRows(page: RunPage): (RunRow | SearchRow)[] {
    const ended: (RunRow | SearchRow)[] = [];
    for (const row of page.searches) {
      if (this.searches.get(row.id)?.live && !row.live) ended.push(row);
      this.searches.set(row.id, row);
    }
    for (const row of page.runs) {
      const hasEnded = this.rows.get(row.id)?.live && isReadable(row) && !row.live;
      if (hasEnded && this.searchOf(row) === null) ended.push(row);
      this.rows.set(row.id, row);
    }
    this.total = page.total;
    this.store = page.store;
    return ended;
  }
}

/** Whether a row is a search, and not a run. */
export function isSearch(row: Listed): row is SearchRow {
  return "planned" in row;
}

/** Whether the run can be read: it has all fields of a row, or of the details. */
export function isReadable<R extends RunRow>(row: R | UnreadableRun): row is R {
  return row.problem === null;
}

function isLive(row: Row): row is RunRow {
  return isReadable(row) && row.live;
}
