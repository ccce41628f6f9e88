/** Opens a notebook at the cell of a run. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { findCell, type Spec } from "../cell";

/** The part of a NotebookPanel that is used here: its package is too large to depend on for this. */
interface NotebookWidget {
  revealed?: Promise<void>;
  content?: {
    widgets?: readonly { model: { sharedModel: { getSource(): string } } }[];
    activeCellIndex?: number;
    scrollToItem?(index: number, align?: string): Promise<void>;
  };
}

export async function showCell(app: JupyterFrontEnd, path: string, spec: Spec): Promise<void> {
  const args = { path, factory: "Notebook" };
  const widget: NotebookWidget | undefined = await app.commands.execute("docmanager:open", args);
  await widget?.revealed;
  const content = widget?.content;
  if (!content?.widgets) return;
  const sources = content.widgets.map((cell) => cell.model.sharedModel.getSource());
  const index = findCell(sources, spec);
  if (index < 0) return;
  content.activeCellIndex = index;
  await content.scrollToItem?.(index, "smart");
}
