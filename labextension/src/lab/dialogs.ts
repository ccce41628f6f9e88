/** Questions to the reader. */

import { Dialog, InputDialog, showDialog } from "@jupyterlab/apputils";
import { Widget } from "@lumino/widgets";
import type { Row } from "../api";
import { readable } from "../panel/runlist";
import { title } from "../panel/words";
import type { Translation } from "../translation";
import { h } from "../view/dom";

/** Whether to stop these runs. */
export function confirmStop(names: string[], trans: Translation): Promise<boolean> {
  return confirm(
    trans.__("Stop %1?", names.join(", ")),
    trans._n(
      "The run ends after its current step. Its history and its model so far are kept.",
      "The runs end after their current steps. Their histories and models so far are kept.",
      names.length,
    ),
    trans.__("Stop"),
    trans,
  );
}

/** Whether to delete these runs. */
export function confirmRemove(rows: Row[], trans: Translation): Promise<boolean> {
  const lost = rows.some((row) => readable(row) && row.state === "LOST" && row.attachable);
  const words = trans._n(
    "Its history, logs and model files are deleted from the store. This cannot be undone.",
    "Their histories, logs and model files are deleted from the store. This cannot be undone.",
    rows.length,
  );
  const warning = trans.__("It may still train on its cluster, where it could not be found any more: stop it first.");
  const names = rows.length > 3 ? trans._n("%1 run", "%1 runs", rows.length) : rows.map(title).join(", ");
  return confirm(trans.__("Delete %1?", names), lost ? `${words} ${warning}` : words, trans.__("Delete"), trans);
}

/** Says what a reader has to know, a paragraph each, until the reader has read it. */
export async function tell(paragraphs: string[], trans: Translation): Promise<void> {
  const node = h("div", { class: "ddl-told" }, ...paragraphs.map((words) => h("p", {}, words)));
  const buttons = [Dialog.okButton({ label: trans.__("Close") })];
  await keepFocus(() => showDialog({ title: trans.__("Distributed Runs"), body: new Widget({ node }), buttons }));
}

/** Another title; null: leave it. */
export function askTitle(now: string, fallback: string, trans: Translation): Promise<string | null> {
  return askText({
    title: trans.__("Rename run"),
    label: trans.__("Title; empty for the name in the notebook, %1", fallback),
    text: now,
    okLabel: trans.__("Rename"),
    cancelLabel: trans.__("Cancel"),
  });
}

/** Other labels; null: leave them. */
export async function askLabels(now: readonly string[], trans: Translation): Promise<string[] | null> {
  const words = await askText({
    title: trans.__("Tags of the run"),
    label: trans.__("Tags, separated by commas"),
    text: now.join(", "),
    okLabel: trans.__("Set"),
    cancelLabel: trans.__("Cancel"),
  });
  if (words === null) return null;
  const labels = words.split(",").map((label) => label.trim());
  return [...new Set(labels.filter(Boolean))];
}

async function confirm(title: string, body: string, label: string, trans: Translation): Promise<boolean> {
  const buttons = [Dialog.cancelButton({ label: trans.__("Cancel") }), Dialog.warnButton({ label })];
  return keepFocus(async () => (await showDialog({ title, body, buttons })).button.accept);
}

/** The text that the reader accepts, or null. */
function askText(options: Parameters<typeof InputDialog.getText>[0]): Promise<string | null> {
  return keepFocus(async () => {
    const { button, value } = await InputDialog.getText(options);
    return button.accept ? (value ?? "").trim() : null;
  });
}

/** The keyboard is after a question where it was before: a dialog with an input does not see to that by itself. */
async function keepFocus<T>(ask: () => Promise<T>): Promise<T> {
  const before = document.activeElement;
  try {
    return await ask();
  } finally {
    if (before instanceof HTMLElement) {
      before.focus();
      // Once more after the dialog is gone, should it have taken the focus with it.
      requestAnimationFrame(() => document.activeElement === document.body && before.focus());
    }
  }
}
