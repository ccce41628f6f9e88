/** The runs as one page knows them: what answers of the server make of a list. Pure. */

import type { Row, Run, Runs } from "../api";

export class RunList {
  /** Rows by id. A row is replaced, never changed: who holds one sees whether it is still the newest. */
  readonly rows = new Map<string, Row>();
  /** Runs that the store has; more than `rows` while pages are missing. */
  total = 0;
  /** The folder of the runs on the server's machine. */
  store = "";
  /** What to ask the next changes for; empty: the pages are to be asked for. */
  version = "";
  /** Where the next page begins; null with the last. */
  next: string | null = null;
  private seen = new Set<string>();

  /** Whether pages are still to be asked for. */
  get incomplete(): boolean {
    return this.version === "" || this.next !== null;
  }

  /** Forgets how far the list is; the rows stay until a first page says otherwise. */
  restart(): void {
    this.version = "";
    this.next = null;
  }

  /** Takes a page. Returns the runs that have ended since they were last seen. */
  page(answer: Runs): Run[] {
    if (this.version === "") {
      this.version = answer.version;
      this.seen = new Set();
    }
    this.next = answer.next;
    for (const { id } of answer.runs) this.seen.add(id);
    const ended = this.take(answer);
    if (this.next === null) {
      for (const id of this.rows.keys()) if (!this.seen.has(id)) this.rows.delete(id);
    }
    return ended;
  }

  /** Takes what changed. Returns the runs that have ended since they were last seen. */
  changes(answer: Runs): Run[] {
    this.version = answer.version;
    for (const id of answer.removed) this.rows.delete(id);
    return this.take(answer);
  }

  /** The runs that go on, newest first. */
  live(): Run[] {
    return [...this.rows.values()].filter(isLive).sort((a, b) => b.created - a.created);
  }

  private take(answer: Runs): Run[] {
    const ended: Run[] = [];
    for (const row of answer.runs) {
      if (this.rows.get(row.id)?.live && readable(row) && !row.live) ended.push(row);
      this.rows.set(row.id, row);
    }
    this.total = answer.total;
    this.store = answer.store;
    return ended;
  }
}

/** Whether this version can read the run. */
export function readable(row: Row): row is Run {
  return row.problem === null;
}

function isLive(row: Row): row is Run {
  return readable(row) && row.live;
}
