/** The REST routes of the server extension. Independent of JupyterLab: the host passes in a `Request`. */

import type {
  Block,
  ExportFormat,
  ListRunsQuery,
  LogPage,
  Matches,
  ReadLogsQuery,
  Replay,
  RunDetails,
  RunPage,
  RunUpdate,
  SearchRow,
  SearchUpdate,
  ServedModel,
  ServerList,
  ServerStopped,
  StopResult,
  UnreadableRun,
  View,
  ViewRunQuery,
  ViewSearchQuery,
} from "./generated";

/** A row of the list: a run, or a folder that cannot be read and has a `problem`. */
export type Row = RunPage["runs"][number];

/** What the list shows: a run, or a search with its trials. */
export type Listed = Row | SearchRow;

/** Sends a request for a path below the server's base URL. Rejects, with any reason, if there is no answer. */
export type Request = (path: string, init: RequestInit) => Promise<Response>;

export class ApiError extends Error {
  override readonly name = "ApiError";

  /**
   * @param message one readable line
   * @param status HTTP status; 0 if the server was not reached
   * @param fromExtension whether our server extension sent the error, and not Jupyter Server or a proxy
   */
  constructor(
    message: string,
    readonly status: number,
    readonly fromExtension: boolean,
  ) {
    super(message);
  }

  get unreachable(): boolean {
    return this.status === 0;
  }

  /** Jupyter Server has no such route: our server extension is not enabled. */
  get notEnabled(): boolean {
    return this.status === 404 && !this.fromExtension;
  }
}

/** What an id belongs to. */
type Collection = "runs" | "searches";

type Query = Record<string, string | number | boolean | undefined>;

/** Each method rejects with an `ApiError`, or with the reason of an aborted `signal`. Null: there is nothing new. */
export class Api {
  /** @param base the server's base URL, with a slash at its end; used by `exportUrl` */
  constructor(
    private readonly request: Request,
    private readonly base = "/",
  ) {}

  /** One page of runs, newest first. */
  async list(query: Omit<ListRunsQuery, "since"> = {}, signal?: AbortSignal): Promise<RunPage> {
    return required(await this.get<RunPage>("runs", { ...query }, signal));
  }

  /** The changes since an answer with this `version`. Status 410: the pages have to be read again. */
  changes(since: string, limit: number, signal?: AbortSignal): Promise<RunPage | null> {
    return this.get<RunPage>("runs", { since, limit }, signal);
  }

  /** The ids of the runs and searches that match a query. Status 400: it cannot be understood; the message says why. */
  async matches(q: string, signal?: AbortSignal): Promise<string[]> {
    return required(await this.get<Matches>("matches", { q }, signal)).ids;
  }

  /** Everything stored about a run except its events. Status 409: the run cannot be read; the message says why. */
  async run(run: string, signal?: AbortSignal): Promise<RunDetails> {
    const details = required(await this.get<RunDetails | UnreadableRun>(pathOf(run), {}, signal));
    if (details.problem !== null) throw new ApiError(details.problem, 409, true);
    return details;
  }

  /** Changes the title, the labels or the note of a run. */
  async update(run: string, update: RunUpdate): Promise<RunDetails> {
    return required(await this.fetch<RunDetails>(pathOf(run), { method: "PATCH", body: JSON.stringify(update) }));
  }

  /** Deletes a run that has ended, with its files, or a search that has ended, with its trials. */
  async delete(id: string, collection: Collection = "runs"): Promise<void> {
    await this.fetch(pathOf(id, "", collection), { method: "DELETE" });
  }

  /** Stops a run after its current step, or a search: no further trial starts. */
  async stop(id: string, collection: Collection = "runs"): Promise<StopResult> {
    return required(await this.fetch<StopResult>(pathOf(id, "stop", collection), { method: "POST" }));
  }

  /** A message for a `RunModel`: a full one without `page`, else the changes since message `n`. */
  view(run: string, query: ViewRunQuery, signal?: AbortSignal): Promise<View | null> {
    return this.get<View>(pathOf(run, "view"), { ...query }, signal);
  }

  /** The workers' table over the course of the run. While `behind` is above 0, ask again. */
  async replay(run: string, signal?: AbortSignal): Promise<Replay> {
    return required(await this.get<Replay>(pathOf(run, "replay"), {}, signal));
  }

  /** What a saved notebook keeps of the run, as the MIME bundle of an output. While `behind` is above 0, ask again. */
  async block(run: string, signal?: AbortSignal): Promise<Block> {
    return required(await this.get<Block>(pathOf(run, "block"), {}, signal));
  }

  /** What a rank printed; -1 is the job. */
  async logs(run: string, rank: number | "all", query: ReadLogsQuery = {}, signal?: AbortSignal): Promise<LogPage> {
    return required(await this.get<LogPage>(pathOf(run, `logs/${rank}`), { ...query }, signal));
  }

  /** A message for a `SearchModel`: a full one without `version`, else what has changed since. */
  searchView(search: string, query: ViewSearchQuery, signal?: AbortSignal): Promise<SearchUpdate | null> {
    return this.get<SearchUpdate>(pathOf(search, "view", "searches"), { ...query }, signal);
  }

  /** What a saved notebook keeps of the search, as the MIME bundle of an output. */
  async searchBlock(search: string, signal?: AbortSignal): Promise<Block> {
    return required(await this.get<Block>(pathOf(search, "block", "searches"), {}, signal));
  }

  async servers(signal?: AbortSignal): Promise<ServedModel[]> {
    return required(await this.get<ServerList>("servers", {}, signal)).servers;
  }

  /** Ends a served model. Returns a line that says what was done. */
  async stopServer(name: string): Promise<string> {
    const path = `servers/${encodeURIComponent(name)}/stop`;
    return required(await this.fetch<ServerStopped>(path, { method: "POST" })).message;
  }

  exportUrl(run: string, format: ExportFormat): string {
    return `${this.base}ddl_magics/${pathOf(run, `export?format=${format}`)}`;
  }

  /** The address of a file of a run in the store. */
  fileUrl(run: string, file: string): string {
    return `${this.base}ddl_magics/${pathOf(run, `files/${encodeURIComponent(file)}`)}`;
  }

  private get<T>(path: string, query: Query, signal?: AbortSignal): Promise<T | null> {
    return this.fetch<T>(path + queryString(query), { method: "GET", ...(signal && { signal }) });
  }

  /** `T` is what openapi.yaml promises for the route: the answer is not validated again. */
  private async fetch<T>(path: string, init: RequestInit): Promise<T | null> {
    let response: Response;
    try {
      response = await this.request(`ddl_magics/${path}`, init);
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new ApiError("Jupyter Server does not respond", 0, false);
    }
    if (response.status === 204) return null;
    if (!response.ok) throw await errorOf(response);
    try {
      const answer: T = await response.json();
      return answer;
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new ApiError("Jupyter Server sent an incomplete answer", 0, false);
    }
  }
}

/** The answer of a route that always has one. */
function required<T>(answer: T | null): T {
  if (answer === null) throw new ApiError("Jupyter Server sent an empty answer", 0, false);
  return answer;
}

function pathOf(id: string, route = "", collection: Collection = "runs"): string {
  return `${collection}/${encodeURIComponent(id)}${route && `/${route}`}`;
}

function queryString(query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given.map(([key, value]) => [key, String(value)]))}` : "";
}

/** The error in an answer. An answer without a JSON message, e.g. a HTML page, is not from our extension. */
async function errorOf(response: Response): Promise<ApiError> {
  const body: { message?: unknown } | null = await response.json().catch(() => null);
  const message = body?.message;
  if (typeof message === "string" && message) return new ApiError(message, response.status, true);
  return new ApiError(`Jupyter Server answered ${response.status} ${response.statusText}`, response.status, false);
}

export function decodeBase64(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}
