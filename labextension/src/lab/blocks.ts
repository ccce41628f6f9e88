/** The plugin that renders the blocks of runs and searches in notebooks. */

import type { JupyterFrontEndPlugin } from "@jupyterlab/application";
import { type IRenderMime, IRenderMimeRegistry } from "@jupyterlab/rendermime";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { RUN_TYPE, SEARCH_TYPE } from "../generated";
import type { Bundle, Stored, StoredOptions } from "../run/stored";
import { h } from "../view/dom";
import { COMMANDS } from "./commandids";
import { ID, IRuns } from "./runs";

/** Before HTML, which the block has for other front ends. */
const RANK = -10;

export const blocksPlugin: JupyterFrontEndPlugin<void> = {
  id: `${ID}:blocks`,
  description: "Draws a run or a search in its notebook from the store where no kernel does.",
  autoStart: true,
  requires: [IRuns, IRenderMimeRegistry],
  activate: (app, runs: IRuns, rendermime: IRenderMimeRegistry) => {
    const stop = (run: string) => void app.commands.execute(COMMANDS.stop, { run });
    const ofRun = async (options: StoredOptions) => {
      const { StoredRun } = await import("../run/stored");
      return new StoredRun({ ...options, api: runs.api });
    };
    const ofSearch = async (options: StoredOptions) => {
      const { StoredSearch } = await import("../search/stored");
      return new StoredSearch({ ...options, api: runs.api, onStopTrial: stop });
    };
    for (const [type, create] of [
      [RUN_TYPE, ofRun],
      [SEARCH_TYPE, ofSearch],
    ] as const) {
      const createRenderer = () => new SavedBlock(type, create, runs, stop, rendermime.createRenderer("text/html"));
      rendermime.addFactory({ safe: true, mimeTypes: [type], createRenderer }, RANK);
    }
  },
};

class SavedBlock extends Widget implements IRenderMime.IRenderer {
  private readonly host = h("div");
  private stored: Stored | null = null;
  private savedState = "";

  /**
   * @param type of the block: what it has of the run or the search
   * @param saved renders what the notebook has saved of it
   */
  constructor(
    private readonly type: string,
    private readonly create: (options: StoredOptions) => Promise<Stored>,
    private readonly runs: IRuns,
    private readonly stop: (id: string) => void,
    private readonly saved: IRenderMime.IRenderer,
  ) {
    super();
    this.host.append(saved.node);
    this.node.append(this.host);
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    await this.saved.renderModel(model);
    const { id, state } = Object(model.data[this.type]);
    this.savedState = String(state);
    if (this.stored || typeof id !== "string") return;
    const stored = await this.create({
      feed: this.runs.feed,
      id,
      saved: this.host,
      savedState: () => this.savedState,
      save: (bundle) => replaceBlock(this, this.type, id, bundle),
      onStop: () => this.stop(id),
    });
    if (this.isDisposed || this.stored) return stored.dispose();
    this.stored = stored;
    this.node.append(stored.element);
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

/** Replaces the blocks of a run or a search in the output area that a widget is in, and so in its notebook. */
function replaceBlock(widget: Widget, type: string, id: string, bundle: Bundle): void {
  for (let parent = widget.parent; parent; parent = parent.parent) {
    const { model }: OutputsWidget = parent as Widget & OutputsWidget;
    if (!model?.set) continue;
    for (let i = 0; i < model.length; i++) {
      const output = model.get(i);
      if (Object(output.data[type]).id === id) model.set(i, { ...output.toJSON(), data: bundle });
    }
    return;
  }
}
