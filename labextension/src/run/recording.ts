/** What a replay shows besides the lines of the charts: the workers' numbers over time, and what was printed when. */

import { type Api, bytes } from "../api";
import { floats } from "../view/model";
import { type LogLine, LogPages } from "./logpages";

/** Parts of the log that are asked for, from its end on: of a long one the begin stays away. */
const LOG_PARTS = 8;

/** Rows of `COLUMNS` at a moment, in seconds since the run was created. */
export interface Frame {
  seconds: number;
  rows: Float32Array;
}

export class Recording {
  readonly frames: Frame[] = [];
  /** What the ranks printed, in the order of time; what became of the job is told by other means. */
  printed: readonly LogLine[] = [];
  private readonly log: LogPages;
  private asked: Promise<void> | null = null;

  constructor(
    private readonly api: Pick<Api, "replay" | "logs">,
    private readonly run: string,
  ) {
    this.log = new LogPages(api, run, "all");
  }

  /** Asks for it once; who calls again gets the same answer, or a new one where there was none. Throws an `ApiError`. */
  load(signal: AbortSignal): Promise<void> {
    this.asked ??= Promise.all([this.loadFrames(signal), this.loadLog(signal)]).then(
      () => {},
      (error) => {
        this.asked = null;
        throw error;
      },
    );
    return this.asked;
  }

  private async loadFrames(signal: AbortSignal): Promise<void> {
    let answer = await this.api.replay(this.run, signal);
    while (answer.behind > 0) answer = await this.api.replay(this.run, signal);
    const frames = answer.moments.map(({ seconds, rows }) => ({ seconds, rows: floats(bytes(rows)) }));
    this.frames.splice(0, this.frames.length, ...frames);
  }

  private async loadLog(signal: AbortSignal): Promise<void> {
    await this.log.follow(signal);
    for (let part = 1; part < LOG_PARTS && this.log.hasOlder && !this.log.full; part++) await this.log.older(signal);
    this.printed = this.log.lines.filter(({ rank, level }) => rank >= 0 || level === "warning");
  }
}
