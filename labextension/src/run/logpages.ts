/** The log of a run, read from its end: the newest part first, older parts on request, new lines as they are printed. */

import type { Api } from "../api";
import type { LogLevel, StoredLogLine } from "../generated";

/** Maximum number of lines that are kept; beyond it the oldest parts are dropped, and can be requested again. */
export const MAX_LINES = 20_000;

/** Number of lines after which new lines start another part. */
const PART_LINES = 1000;

export interface PrintedLine {
  /** Seconds since the epoch. */
  time: number;
  /** -1 is the job. */
  rank: number;
  level: LogLevel;
  text: string;
}

/** Consecutive lines; `begin` is their offset in the file of events. */
interface Part {
  begin: number;
  lines: PrintedLine[];
}

export class LogPages {
  private parts: Part[] = [];
  /** Where the next lines begin; null before the first request. */
  private offset: number | null = null;
  /** Changes when lines are added or dropped at the beginning. */
  generation = 0;

  constructor(
    private readonly api: Pick<Api, "logs">,
    private readonly run: string,
    readonly rank: number | "all",
  ) {}

  get lines(): PrintedLine[] {
    return this.parts.flatMap(({ lines }) => lines);
  }

  /** Whether there may be lines before those that are kept. */
  get hasOlder(): boolean {
    return (this.parts[0]?.begin ?? 0) > 0;
  }

  /** Whether there is no room for older lines. */
  get full(): boolean {
    return this.count >= MAX_LINES;
  }

  /** Reads the new lines; at first, the end of the log. Rejects as `Api.logs` does; everything read so far is kept. */
  async readNew(signal: AbortSignal): Promise<void> {
    const first = this.offset === null;
    const query = this.offset === null ? { tail: true } : { offset: this.offset };
    let page = await this.api.logs(this.run, this.rank, query, signal);
    if (first) this.parts = [{ begin: page.begin, lines: [] }];
    this.append(page.begin, page.lines);
    this.offset = page.offset;
    while (page.more) {
      page = await this.api.logs(this.run, this.rank, { offset: this.offset }, signal);
      this.append(page.begin, page.lines);
      this.offset = page.offset;
    }
    // The end of the file may have no lines of this rank.
    if (first && !this.count) await this.readOlder(signal);
  }

  /** Reads the part before; if it has no lines, the parts before that. */
  async readOlder(signal: AbortSignal): Promise<void> {
    while (this.hasOlder && !this.full) {
      const before = this.parts[0]?.begin ?? 0;
      let page = await this.api.logs(this.run, this.rank, { tail: true, before }, signal);
      // A line that is longer than a part ends the log: what is before it cannot be reached.
      const part = { begin: page.begin < before ? page.begin : 0, lines: page.lines.map(printedLine) };
      while (page.more) {
        page = await this.api.logs(this.run, this.rank, { offset: page.offset, before }, signal);
        part.lines.push(...page.lines.map(printedLine));
      }
      // New lines have displaced the oldest part meanwhile: this one does not fit any more.
      if (before !== this.parts[0]?.begin) return;
      this.parts.unshift(part);
      this.generation += 1;
      if (part.lines.length) return;
    }
  }

  private get count(): number {
    return this.parts.reduce((sum, { lines }) => sum + lines.length, 0);
  }

  private append(begin: number, lines: StoredLogLine[]): void {
    if (!lines.length) return;
    const last = this.parts.at(-1);
    if (last && last.lines.length < PART_LINES) last.lines.push(...lines.map(printedLine));
    else this.parts.push({ begin, lines: lines.map(printedLine) });
    while (this.count > MAX_LINES && this.parts.length > 1) {
      this.parts.shift();
      this.generation += 1;
    }
  }
}

function printedLine([time, rank, level, text]: StoredLogLine): PrintedLine {
  return { time, rank, level, text };
}
