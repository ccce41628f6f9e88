/** What a reader can do with a run, wherever it is shown. JupyterLab's services are behind it. */

import type { ExportFormat, Stop } from "./api";
import type { Preferences } from "./view/preferences";

/** Runs are named by their id. What needs a confirmation asks for it; what fails is told to the reader. */
export interface RunActions {
  /** Shows the run in a tab of its own, or brings that to the front. */
  openRun(run: string): void;
  /** Shows two or more runs over each other in a tab. */
  compare(runs: string[]): void;
  /** Opens the run's notebook, at the cell where it is found. */
  openNotebook(run: string): Promise<void>;
  /** Puts the cell with its options into the clipboard. */
  copyAsCell(run: string): Promise<void>;
  /** Asks, then ends the run after its current step. `null`: the reader or the server said no. */
  stop(run: string): Promise<Stop | null>;
  /** Asks, then deletes the run with its files. False: it is still there. */
  remove(run: string): Promise<boolean>;
  /** Asks for another title. */
  rename(run: string): Promise<void>;
  /** Asks for other labels. */
  label(run: string): Promise<void>;
  /** Has the browser save a file of the server; `url` is one of `Api.exportUrl`. */
  download(url: string): void;
  /** The run as a file of a format. */
  exportRun(run: string, format: ExportFormat): void;
  /** Says a line to the reader, where Jupyter says such things. */
  notify(message: string, kind?: "info" | "error" | "success"): void;
}

/** What the reader has set; a page follows changes through `Settings.changed`. */
export interface Settings extends Preferences {
  /** Seconds between two looks at what goes on. */
  readonly pollSeconds: number;
  /** Calls back after each change; returns how to stop. */
  changed(listener: () => void): () => void;
}
