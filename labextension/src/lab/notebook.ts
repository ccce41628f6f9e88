/** Opens a notebook at the cell of a run. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { findCell } from "./cell";

/** What is used of a notebook's widget; its package is large, and nothing else of it is needed here. */
interface NotebookWidget {
  revealed?: Promise<void>;
  content?: {
    widgets?: readonly { model: { sharedModel: { getSource(): string } } }[];
    activeCellIndex?: number;
    scrollToItem?(index: number, align?: string): Promise<void>;
  };
}

export async function showCell(app: JupyterFrontEnd, path: string, spec: Record<string, unknown>): Promise<void> {
  const widget = (await app.commands.execute("docmanager:open", { path, factory: "Notebook" })) as NotebookWidget;
  await widget?.revealed;
  const content = widget?.content;
  if (!content?.widgets) return;
  const at = findCell(
    content.widgets.map((cell) => cell.model.sharedModel.getSource()),
    spec,
  );
  if (at < 0) return;
  content.activeCellIndex = at;
  await content.scrollToItem?.(at, "smart");
}
