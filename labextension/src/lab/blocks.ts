/** The plugin that renders the blocks of runs in notebooks. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { type IRenderMime, IRenderMimeRegistry } from "@jupyterlab/rendermime";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { RUN_TYPE } from "../generated";
import type { Bundle, StoredRun } from "../run/stored";
import { h } from "../view/dom";
import { COMMANDS } from "./commandids";
import { ID, IRuns } from "./runs";

/** Before HTML, which the block has for other front ends. */
const RANK = -10;

export const blocksPlugin: JupyterFrontEndPlugin<void> = {
  id: `${ID}:blocks`,
  description: "Draws a run in its notebook from the store where no kernel does.",
  autoStart: true,
  requires: [IRuns, IRenderMimeRegistry],
  activate: (app, runs: IRuns, rendermime: IRenderMimeRegistry) => {
    const createRenderer = () => new RunBlock(app, runs, rendermime.createRenderer("text/html"));
    rendermime.addFactory({ safe: true, mimeTypes: [RUN_TYPE], createRenderer }, RANK);
  },
};

class RunBlock extends Widget implements IRenderMime.IRenderer {
  private readonly host = h("div");
  private stored: StoredRun | null = null;
  private savedState = "";

  /** @param saved renders what the notebook has saved of the run */
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly runs: IRuns,
    private readonly saved: IRenderMime.IRenderer,
  ) {
    super();
    this.host.append(saved.node);
    this.node.append(this.host);
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    await this.saved.renderModel(model);
    const { id: run, state } = Object(model.data[RUN_TYPE]);
    this.savedState = String(state);
    if (this.stored || typeof run !== "string") return;
    const { StoredRun } = await import("../run/stored");
    if (this.isDisposed || this.stored) return;
    const onStop = () => void this.app.commands.execute(COMMANDS.stop, { run });
    const savedState = () => this.savedState;
    const save = (bundle: Bundle) => replaceBlock(this, run, bundle);
    this.stored = new StoredRun({ ...this.runs, run, saved: this.host, savedState, save, onStop });
    this.node.append(this.stored.element);
    this.stored.listChanged();
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.stored?.dispose();
    this.saved.dispose();
    super.dispose();
  }

  protected override onAfterAttach(_: Message): void {
    this.stored?.listChanged();
  }
}

/** The part of an output area that is used here: its package is too large to depend on for this. */
interface OutputsWidget {
  model?: {
    length: number;
    get(index: number): { data: Record<string, unknown>; toJSON(): Record<string, unknown> };
    set?(index: number, output: Record<string, unknown>): void;
  };
}

/** Replaces the blocks of a run in the output area that a widget is in, and so in its notebook. */
function replaceBlock(widget: Widget, run: string, bundle: Bundle): void {
  for (let parent = widget.parent; parent; parent = parent.parent) {
    const { model }: OutputsWidget = parent as Widget & OutputsWidget;
    if (!model?.set) continue;
    for (let i = 0; i < model.length; i++) {
      const output = model.get(i);
      if (Object(output.data[RUN_TYPE]).id === run) model.set(i, { ...output.toJSON(), data: bundle });
    }
    return;
  }
}
