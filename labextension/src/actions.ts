/** Interfaces between the pages and JupyterLab's services behind them. */

import type { ExportFormat, SettingValues, StopResult } from "./generated";

/** What a reader can do with a run, named by its id. Failures are shown to the reader. */
export interface RunActions {
  /** Opens the run in a tab of its own, or activates that tab. */
  openRun(run: string): void;
  /** The same for a search. */
  openSearch(search: string): void;
  /** Opens a comparison of two or more runs in a tab. */
  compare(runs: string[]): void;
  /** Opens the notebook of the run, at its cell if that is found. */
  openNotebook(run: string): Promise<void>;
  /** Copies the cell with its options to the clipboard. */
  copyAsCell(run: string): Promise<void>;
  /** Stops the run after its current step, after a confirmation. Null: it was cancelled or failed. */
  stop(run: string): Promise<StopResult | null>;
  /** Ends the search, after a confirmation. Null: it was cancelled or failed. */
  stopSearch(search: string): Promise<StopResult | null>;
  /** Deletes the run with its files, after a confirmation. Returns whether it was deleted. */
  delete(run: string): Promise<boolean>;
  /** Asks for a new title. */
  rename(run: string): Promise<void>;
  /** Asks for new labels. */
  label(run: string): Promise<void>;
  /** Asks for a new note. */
  note(run: string): Promise<void>;
  /** Downloads a file from the server; `url` is from `Api.exportUrl`. */
  download(url: string): void;
  /** Downloads the run as a file. */
  exportRun(run: string, format: ExportFormat): void;
  /** Shows a notification. */
  notify(message: string, kind?: "info" | "error" | "success"): void;
}

/** The reader's current settings. */
export interface Settings extends Readonly<SettingValues> {
  /** Calls `listener` after each change; returns a function that removes it. */
  onChange(listener: () => void): () => void;
}
