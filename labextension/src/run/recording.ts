/** What a replay shows besides the charts: the workers' table and the log over the course of the run. */

import { type Api, decodeBase64 } from "../api";
import { floats } from "../view/model";
import { LogPages, type PrintedLine } from "./logpages";

/** Number of parts of the log that are read from its end; the beginning of a longer log is left out. */
const MAX_LOG_PARTS = 8;

/** The workers' table at a time: rows of `COLUMNS`. */
export interface Frame {
  /** Seconds since the run was created. */
  seconds: number;
  rows: Float32Array;
}

export class Recording {
  readonly frames: Frame[] = [];
  /** What the ranks printed, warnings about the job, and who has come or gone, in order of time. */
  printed: readonly PrintedLine[] = [];
  private readonly log: LogPages;
  private request: Promise<void> | null = null;

  constructor(
    private readonly api: Pick<Api, "replay" | "logs">,
    private readonly run: string,
  ) {
    this.log = new LogPages(api, run, "all");
  }

  /** Loads the recording, once; after an error, another call tries again. Rejects with an `ApiError`. */
  load(signal: AbortSignal): Promise<void> {
    this.request ??= Promise.all([this.loadFrames(signal), this.loadLog(signal)]).then(
      () => {},
      (error) => {
        this.request = null;
        throw error;
      },
    );
    return this.request;
  }

  private async loadFrames(signal: AbortSignal): Promise<void> {
    let answer = await this.api.replay(this.run, signal);
    while (answer.behind > 0) answer = await this.api.replay(this.run, signal);
    const frames = answer.frames.map(({ seconds, rows }) => ({ seconds, rows: floats(decodeBase64(rows)) }));
    this.frames.splice(0, this.frames.length, ...frames);
  }

  private async loadLog(signal: AbortSignal): Promise<void> {
    await this.log.readNew(signal);
    for (let part = 1; part < MAX_LOG_PARTS && this.log.hasOlder && !this.log.full; part++) {
      await this.log.readOlder(signal);
    }
    this.printed = this.log.lines.filter(
      ({ rank, level, text }) => rank >= 0 || level === "warning" || text.startsWith("RUNNING: "),
    );
  }
}
