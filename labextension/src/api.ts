/** The server extension's routes, typed as its openapi.yaml says. It knows no JupyterLab: a host hands it `request`. */

import type { Events, Logs, Names, Replay, Run, RunDetails, Runs, Stop, UnreadableRun, View } from "./rest";

export type { Events, Logs, Names, Replay, Run, RunDetails, Runs, Stop, UnreadableRun, View };

/** A row of the list; `problem` tells which. */
export type Row = Run | UnreadableRun;

export type ExportFormat = "csv" | "json" | "html";

/** Asks the server for a path below its base URL. Throws, whatever it likes, where no answer comes. */
export type Request = (path: string, init: RequestInit) => Promise<Response>;

/** What became of a question, where it is no answer. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  /**
   * @param message a line for people
   * @param status HTTP's; 0 where the server was not reached
   * @param ours whether our server extension said so, and not Jupyter Server: it is not enabled there, or a proxy spoke
   */
  constructor(
    message: string,
    readonly status: number,
    readonly ours: boolean,
  ) {
    super(message);
  }

  /** The server was not reached: it is gone, or the network is. */
  get gone(): boolean {
    return this.status === 0;
  }

  /** Jupyter Server answers, and has no such route. */
  get notEnabled(): boolean {
    return this.status === 404 && !this.ours;
  }
}

/** What a list asks for first. */
export interface ListQuery {
  limit?: number;
  cursor?: string;
  live?: boolean;
  q?: string;
}

export interface LogQuery {
  offset?: number;
  tail?: boolean;
  before?: number;
}

type Query = Record<string, string | number | boolean | undefined>;

/** Each method throws an `ApiError`, or what an aborted `signal` throws. `null` stands for "nothing new". */
export class Api {
  /** @param base what exports begin with: the server's base URL, with a slash at its end */
  constructor(
    private readonly request: Request,
    private readonly base = "/",
  ) {}

  /** A page of runs, newest first. */
  async list(query: ListQuery = {}, signal?: AbortSignal): Promise<Runs> {
    return (await this.get<Runs>("runs", { ...query }, signal)) as Runs;
  }

  /** What changed since an answer of this `version`. Status 410: pages are to be asked for anew. */
  changes(since: string, limit: number, signal?: AbortSignal): Promise<Runs | null> {
    return this.get<Runs>("runs", { since, limit }, signal);
  }

  /** All that is known of a run but its events. */
  async run(run: string, signal?: AbortSignal): Promise<RunDetails | UnreadableRun> {
    return (await this.get<RunDetails | UnreadableRun>(at(run), {}, signal)) as RunDetails | UnreadableRun;
  }

  /** Gives a run another title or other labels. */
  async patch(run: string, names: Names): Promise<RunDetails> {
    return (await this.ask<RunDetails>(at(run), { method: "PATCH", body: JSON.stringify(names) })) as RunDetails;
  }

  /** Removes a run that has ended, with its files. */
  async remove(run: string): Promise<void> {
    await this.ask(at(run), { method: "DELETE" });
  }

  /** Ends a run after its current step. */
  async stop(run: string): Promise<Stop> {
    return (await this.ask<Stop>(at(run, "stop"), { method: "POST" })) as Stop;
  }

  /** The run as messages for a `RunModel`: without `page` all of it, else what is new after message `n`. */
  view(run: string, query: { page?: string; n?: number; wait?: number }, signal?: AbortSignal): Promise<View | null> {
    return this.get<View>(at(run, "view"), query, signal);
  }

  /** Events after a sequence number, as they are stored. */
  async events(run: string, query: { after?: number; wait?: number } = {}, signal?: AbortSignal): Promise<Events> {
    return (await this.get<Events>(at(run, "events"), query, signal)) as Events;
  }

  /** The table of the workers over the run's time. While it is `behind`, ask again. */
  async replay(run: string, signal?: AbortSignal): Promise<Replay> {
    return (await this.get<Replay>(at(run, "replay"), {}, signal)) as Replay;
  }

  /** What a rank printed; -1 is the job. */
  async logs(run: string, rank: number | "all", query: LogQuery = {}, signal?: AbortSignal): Promise<Logs> {
    return (await this.get<Logs>(at(run, `logs/${rank}`), { ...query }, signal)) as Logs;
  }

  /** Where a run is had as a file. */
  exportUrl(run: string, format: ExportFormat): string {
    return `${this.base}ddl_magics/${at(run, `export?format=${format}`)}`;
  }

  private get<T>(path: string, query: Query, signal?: AbortSignal): Promise<T | null> {
    return this.ask<T>(path + words(query), { method: "GET", ...(signal && { signal }) });
  }

  private async ask<T>(path: string, init: RequestInit): Promise<T | null> {
    let response: Response;
    try {
      response = await this.request(`ddl_magics/${path}`, init);
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new ApiError("Jupyter Server does not answer", 0, false);
    }
    if (response.status === 204) return null;
    if (!response.ok) throw await refusal(response);
    try {
      return (await response.json()) as T;
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new ApiError("Jupyter Server broke off its answer", 0, false);
    }
  }
}

function at(run: string, part = ""): string {
  return `runs/${encodeURIComponent(run)}${part && `/${part}`}`;
}

function words(query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given.map(([key, value]) => [key, String(value)]))}` : "";
}

/** The line of the error that the server described; a page of HTML is none of ours. */
async function refusal(response: Response): Promise<ApiError> {
  try {
    const { message } = (await response.json()) as { message?: unknown };
    if (typeof message === "string" && message) return new ApiError(message, response.status, true);
  } catch {
    // Not JSON: said below.
  }
  return new ApiError(`Jupyter Server answered ${response.status} ${response.statusText}`, response.status, false);
}

/** Bytes that an answer has as base64. */
export function bytes(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}
