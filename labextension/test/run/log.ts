/** A log on a server that gives it in parts, as the route does; a line is as long as a number. */

import type { LogQuery, Logs } from "../../src/api";

const TAIL = 100;
const PART = 40;

export class LogServer {
  lines: unknown[][] = [];
  asked: LogQuery[] = [];
  down = false;

  print(count: number, rank = 0, words = "line"): void {
    const at = this.lines.length;
    for (let n = at; n < at + count; n++) this.lines.push([1_795_255_200 + n, rank, "out", `${words} ${n}`]);
  }

  async logs(_run: string, rank: number | "all", query: LogQuery = {}): Promise<Logs> {
    if (this.down) throw new Error("Jupyter Server does not answer");
    this.asked.push(query);
    const size = this.lines.length;
    const end = Math.min(query.before ?? size, size);
    const begin = query.tail ? Math.max(0, end - TAIL) : Math.min(query.offset ?? 0, end);
    const offset = Math.min(begin + PART, end);
    const lines = this.lines.slice(begin, offset).filter(([, by]) => rank === "all" || by === rank);
    return { lines, offset, begin, more: offset < end };
  }
}
