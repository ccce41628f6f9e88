/** What a page lets its reader do: the interface to JupyterLab's services behind it. */

import type { ExportFormat, StopResult } from "./generated";

/** What a reader can do with a run, named by its id. Failures are shown to the reader. */
export interface RunActions {
  /** Opens the run in a tab of its own, or activates that tab. */
  openRun(run: string): void;
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
  exportRun(run: string, format: ExportFormat): void;
  /** Downloads a file of the run in the store, such as its trained model. */
  downloadFile(run: string, file: string): void;
}
