/** The panel, its commands and its tabs, in JupyterLab or Notebook 7. */

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { IStateDB } from "@jupyterlab/statedb";
import { Menu } from "@lumino/widgets";
import { EVERYTHING, type Wish } from "../panel/arrange";
import { LabActions } from "./actions";
import { addCommands, COMMANDS, FORMATS } from "./commands";
import { ID, IRuns } from "./runs";
import { Sidebar } from "./sidebar";
import { PageTabs } from "./tabs";

/** Below files and running kernels, above what others add. */
const SIDE_RANK = 250;

const WISH_KEY = `${ID}:panel`;

/** What the menu of a row holds; null is a line. */
const MENU = [
  COMMANDS.open,
  COMMANDS.notebook,
  COMMANDS.copy,
  null,
  COMMANDS.stop,
  COMMANDS.compare,
  null,
  COMMANDS.rename,
  COMMANDS.label,
  null,
  COMMANDS.export,
  null,
  COMMANDS.remove,
] as const;

export const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: `${ID}:panel`,
  description: "Lists the distributed runs of all kernels in a side panel, and shows them in tabs.",
  autoStart: true,
  requires: [IRuns],
  optional: [ICommandPalette, ILauncher, ILayoutRestorer, IStateDB],
  activate,
};

function activate(
  app: JupyterFrontEnd,
  runs: IRuns,
  palette: ICommandPalette | null,
  launcher: ILauncher | null,
  restorer: ILayoutRestorer | null,
  state: IStateDB | null,
): void {
  const { commands, shell, contextMenu } = app;
  const { trans } = runs;
  const actions: LabActions = new LabActions(app, runs, {
    openRun: (run) => tabs.open([run]),
    compare: (chosen) => comparisons.open(chosen),
  });
  const tabs = new PageTabs(app, runs, "run", async (host, [run]) => {
    const { createRunPage } = await import("../run/page");
    return createRunPage(host, { ...runs, actions, run: run as string });
  });
  const comparisons = new PageTabs(app, runs, "compare", async (host, chosen) => {
    const { createComparePage } = await import("../compare/page");
    return createComparePage(host, { ...runs, actions, runs: chosen });
  });
  const menu = new Menu({ commands });
  const sidebar = new Sidebar({
    runs,
    commands,
    wished: (wish) => void state?.save(WISH_KEY, { ...wish }),
  });
  addCommands(app, runs, actions, {
    chosen: () => sidebar.view.list.chosen,
    show: () => shell.activateById(sidebar.id),
    menu: () => sidebar.openMenu(menu),
  });

  for (const command of MENU) {
    for (const item of command === null ? [{ type: "separator" as const }] : items(command)) {
      menu.addItem(item);
      contextMenu.addItem({ ...item, selector: ".ddl-list" });
    }
  }

  shell.add(sidebar, "left", { rank: SIDE_RANK, type: "Distributed Runs" });
  void state?.fetch(WISH_KEY).then((wish) => {
    if (wish) sidebar.view.restore({ ...EVERYTHING, ...(wish as Partial<Wish>) });
  });

  const category = trans.__("Distributed Runs");
  for (const command of Object.values(COMMANDS)) {
    if (command === COMMANDS.more) continue;
    for (const item of items(command)) palette?.addItem({ ...item, category });
  }
  launcher?.add({ command: COMMANDS.panel, category: trans.__("Other"), rank: 10 });
  if (restorer) {
    restorer.add(sidebar, sidebar.id);
    tabs.restore(restorer);
    comparisons.restore(restorer);
  }
}

/** The entries of a command: exporting has one a format. */
function items(command: string): { command: string; args?: { format: string } }[] {
  if (command !== COMMANDS.export) return [{ command }];
  return FORMATS.map((format) => ({ command, args: { format } }));
}
