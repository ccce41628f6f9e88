/** Dialogs. */

import { Dialog, InputDialog, showDialog } from "@jupyterlab/apputils";
import { Widget } from "@lumino/widgets";
import type { Listed, Row } from "../api";
import { MAX_NOTE_CHARACTERS } from "../generated";
import { title } from "../panel/format";
import { isReadable, isSearch } from "../panel/runlist";
import type { Translation } from "../translation";
import { h } from "../view/dom";

/** What is asked to stop: anything else than runs is told with other words. */
export type Stopped = "runs" | "searches" | "monitors";

/** Asks whether to stop what has these titles. `kind`: of all of them, or "searches" if there are some among them. */
export function confirmStop(titles: string[], kind: Stopped, trans: Translation): Promise<boolean> {
  const ofSearch = trans.__(
    "No further trial starts, and those that run end after their current step. What they have reported is kept.",
  );
  const ofRuns = trans._n(
    "The run ends after its current step. Its history and its model so far are kept.",
    "The runs end after their current steps. Their histories and models so far are kept.",
    titles.length,
  );
  const ofMonitors = trans.__("It counts no further requests. What it has counted is kept.");
  const body = { runs: ofRuns, searches: ofSearch, monitors: ofMonitors }[kind];
  return confirm(trans.__("Stop %1?", titles.join(", ")), body, trans.__("Stop"), trans);
}

/** Asks whether to end a served model. */
export function confirmStopServer(name: string, trans: Translation): Promise<boolean> {
  const body = trans.__("Programs that ask it for predictions get no answers any more. The model stays in its run.");
  return confirm(trans.__("Stop serving %1?", name), body, trans.__("Stop"), trans);
}

/** Asks whether to delete these runs and searches, and with the searches their trials. */
export function confirmDelete(rows: Listed[], trials: Row[], trans: Translation): Promise<boolean> {
  const mayTrain = [...rows, ...trials].some(
    (row) => !isSearch(row) && isReadable(row) && row.state === "LOST" && row.attachable,
  );
  const text = trans._n(
    "Its history, logs and model files are deleted from the store. This cannot be undone.",
    "Their histories, logs and model files are deleted from the store. This cannot be undone.",
    rows.length,
  );
  const warning = trans.__(
    "It may still be training on its cluster, and could not be found there afterwards: stop it first.",
  );
  const titles = rows.length > 3 ? trans._n("%1 run", "%1 runs", rows.length) : rows.map(title).join(", ");
  const withTrials = rows.some(isSearch) ? trans.__("The trials of a search go with it.") : "";
  const body = [text, withTrials, mayTrain && warning].filter(Boolean).join(" ");
  return confirm(trans.__("Delete %1?", titles), body, trans.__("Delete"), trans);
}

/** Shows paragraphs of text until the reader closes the dialog. */
export async function showMessage(paragraphs: string[], trans: Translation): Promise<void> {
  const node = h("div", { class: "ddl-dialog-text" }, ...paragraphs.map((text) => h("p", {}, text)));
  const buttons = [Dialog.okButton({ label: trans.__("Close") })];
  await restoringFocus(() => showDialog({ title: trans.__("Distributed Runs"), body: new Widget({ node }), buttons }));
}

/** Asks for a title; null: cancelled. */
export function askTitle(current: string, name: string, trans: Translation): Promise<string | null> {
  const label = trans.__("Title; leave it empty to use the name in the notebook, %1", name);
  return askText(trans.__("Rename run"), label, current, trans.__("Rename"), trans);
}

/** Asks for labels; null: cancelled. */
export async function askLabels(current: readonly string[], trans: Translation): Promise<string[] | null> {
  const label = trans.__("Tags, separated by commas");
  const text = await askText(trans.__("Tags of the run"), label, current.join(", "), trans.__("Set"), trans);
  if (text === null) return null;
  const labels = text.split(",").map((label) => label.trim());
  return [...new Set(labels.filter(Boolean))];
}

/** Asks for a note of some lines; null: cancelled. */
export async function askNote(current: string, trans: Translation): Promise<string | null> {
  const label = trans.__("Note; leave it empty to remove it");
  const attributes = { class: "ddl-dialog-note", rows: 6, maxlength: MAX_NOTE_CHARACTERS, "aria-label": label };
  const node = h("textarea", attributes);
  node.value = current;
  const buttons = [Dialog.cancelButton({ label: trans.__("Cancel") }), Dialog.okButton({ label: trans.__("Set") })];
  const content = { title: trans.__("Note on the run"), body: new Widget({ node }), buttons };
  return restoringFocus(async () => {
    const { button } = await showDialog({ ...content, focusNodeSelector: "textarea" });
    return button.accept ? node.value.trim() : null;
  });
}

async function confirm(title: string, body: string, label: string, trans: Translation): Promise<boolean> {
  const buttons = [Dialog.cancelButton({ label: trans.__("Cancel") }), Dialog.warnButton({ label })];
  return restoringFocus(async () => (await showDialog({ title, body, buttons })).button.accept);
}

/** The text that the reader accepts, or null. */
function askText(
  title: string,
  label: string,
  text: string,
  okLabel: string,
  trans: Translation,
): Promise<string | null> {
  return restoringFocus(async () => {
    const options = { title, label, text, okLabel, cancelLabel: trans.__("Cancel") };
    const { button, value } = await InputDialog.getText(options);
    return button.accept ? (value ?? "").trim() : null;
  });
}

/** Returns the focus to where it was before a dialog: a dialog with an input does not do so itself. */
async function restoringFocus<T>(openDialog: () => Promise<T>): Promise<T> {
  const before = document.activeElement;
  try {
    return await openDialog();
  } finally {
    if (before instanceof HTMLElement) {
      before.focus();
      // Once more after the dialog has been removed, which may drop the focus.
      requestAnimationFrame(() => document.activeElement === document.body && before.focus());
    }
  }
}
