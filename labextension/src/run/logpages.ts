/** What a rank printed, from its end on: the newest part first, older ones when they are asked for, new lines as they come. */

import type { Api } from "../api";
import type { LogLevel } from "../view/messages";

/** So many lines are kept; beyond them the oldest parts go, and can be asked for again. */
export const MOST_LINES = 20_000;

/** Lines after which a part is full: what comes next begins another. */
const PART_LINES = 1000;

export interface LogLine {
  /** Seconds since the epoch. */
  time: number;
  rank: number;
  level: LogLevel;
  text: string;
}

interface PageOfLog {
  begin: number;
  lines: LogLine[];
}

export class LogPages {
  private pages: PageOfLog[] = [];
  private offset: number | null = null;
  /** Changes when lines have come or gone before those that were there. */
  generation = 0;

  constructor(
    private readonly api: Pick<Api, "logs">,
    private readonly run: string,
    readonly rank: number | "all",
  ) {}

  get lines(): LogLine[] {
    return this.pages.flatMap(({ lines }) => lines);
  }

  /** Whether there may be lines before those that are kept. */
  get hasOlder(): boolean {
    return (this.pages[0]?.begin ?? 0) > 0;
  }

  /** Whether so many lines are kept that older ones are not taken any more. */
  get full(): boolean {
    return this.count >= MOST_LINES;
  }

  /** Takes what is new: at first the end of the log. Throws what `Api.logs` throws; then it is as it was. */
  async follow(signal: AbortSignal): Promise<void> {
    const first = this.offset === null;
    let answer = await this.api.logs(
      this.run,
      this.rank,
      first ? { tail: true } : { offset: this.offset ?? 0 },
      signal,
    );
    if (first) this.pages = [{ begin: answer.begin, lines: [] }];
    this.append(answer.begin, answer.lines);
    this.offset = answer.offset;
    while (answer.more) {
      answer = await this.api.logs(this.run, this.rank, { offset: this.offset }, signal);
      this.append(answer.begin, answer.lines);
      this.offset = answer.offset;
    }
    // The end may be all of other ranks, or of numbers.
    if (first && !this.count) await this.older(signal);
  }

  /** Takes the part before, and those before that until there are lines in one. */
  async older(signal: AbortSignal): Promise<void> {
    while (this.hasOlder && !this.full) {
      const before = this.pages[0]?.begin ?? 0;
      let answer = await this.api.logs(this.run, this.rank, { tail: true, before }, signal);
      // A line longer than a part has nothing before it that could be had.
      const page = { begin: answer.begin < before ? answer.begin : 0, lines: answer.lines.map(line) };
      while (answer.more) {
        answer = await this.api.logs(this.run, this.rank, { offset: answer.offset, before }, signal);
        page.lines.push(...answer.lines.map(line));
      }
      // What this comes before has gone meanwhile, as new lines came.
      if (before !== this.pages[0]?.begin) return;
      this.pages.unshift(page);
      this.generation += 1;
      if (page.lines.length) return;
    }
  }

  private get count(): number {
    return this.pages.reduce((sum, { lines }) => sum + lines.length, 0);
  }

  private append(begin: number, lines: unknown[][]): void {
    if (!lines.length) return;
    const last = this.pages.at(-1);
    if (last && last.lines.length < PART_LINES) last.lines.push(...lines.map(line));
    else this.pages.push({ begin, lines: lines.map(line) });
    while (this.count > MOST_LINES && this.pages.length > 1) {
      this.pages.shift();
      this.generation += 1;
    }
  }
}

function line([time, rank, level, text]: unknown[]): LogLine {
  return { time: Number(time), rank: Number(rank), level: level as LogLevel, text: String(text) };
}
