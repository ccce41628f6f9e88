/** A server with a log, of which it sends parts as the route does; the offset of a line is its number. */

import type { LogPage, ReadLogsQuery, StoredLogLine } from "../../src/generated";

const TAIL = 100;
const PART = 40;

export class LogServer {
  lines: StoredLogLine[] = [];
  queries: ReadLogsQuery[] = [];
  down = false;

  print(count: number, rank = 0, text = "line"): void {
    const at = this.lines.length;
    for (let n = at; n < at + count; n++) this.lines.push([1_795_255_200 + n, rank, "out", `${text} ${n}`]);
  }

  async logs(_run: string, rank: number | "all", query: ReadLogsQuery = {}): Promise<LogPage> {
    if (this.down) throw new Error("Jupyter Server does not respond");
    this.queries.push(query);
    const size = this.lines.length;
    const end = Math.min(query.before ?? size, size);
    const begin = query.tail ? Math.max(0, end - TAIL) : Math.min(query.offset ?? 0, end);
    const offset = Math.min(begin + PART, end);
    const lines = this.lines.slice(begin, offset).filter(([, of]) => rank === "all" || of === rank);
    return { lines, offset, begin, more: offset < end };
  }
}
