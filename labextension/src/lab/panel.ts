/** The plugin of the panel: the sidebar, its commands and menus, and the tabs. */

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { IStateDB } from "@jupyterlab/statedb";
import { MenuSvg } from "@jupyterlab/ui-components";
import { EXPORT_FORMATS } from "../generated";
import { parseFilter } from "../panel/listfilter";
import { LabActions } from "./actions";
import { COMMANDS } from "./commandids";
import { addCommands } from "./commands";
import { ID, IRuns } from "./runs";
import { Sidebar } from "./sidebar";
import { PageTabs } from "./tabs";

/** Position in the side bar: below files and running kernels, above other extensions. */
const SIDEBAR_RANK = 250;

/** Key of the filter in the state database. */
const FILTER_KEY = `${ID}:panel`;

/** The entries of a row's menu; null is a separator. */
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
  COMMANDS.note,
  null,
  COMMANDS.export,
  null,
  COMMANDS.delete,
] as const;

export const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: `${ID}:panel`,
  description: "Lists the distributed runs of all kernels in a side panel, and opens them in tabs.",
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
  const tabs = {
    run: new PageTabs(app, runs, "run", async (host, [run = ""]) => {
      const { RunPage } = await import("../run/page");
      return new RunPage(host, { ...runs, actions, run });
    }),
    search: new PageTabs(app, runs, "search", async (host, [search = ""]) => {
      const { SearchPage } = await import("../search/page");
      return new SearchPage(host, { ...runs, actions, search });
    }),
    compare: new PageTabs(app, runs, "compare", async (host, compared) => {
      const { ComparePage } = await import("../compare/page");
      return new ComparePage(host, { ...runs, actions, runs: compared });
    }),
  };
  const actions: LabActions = new LabActions(app, runs, tabs);
  const menu = new MenuSvg({ commands });
  const sidebar = new Sidebar({
    runs,
    commands,
    stopServer: (name) => void actions.stopServer(name),
    filterChanged: (filter) => void state?.save(FILTER_KEY, { ...filter }),
  });
  addCommands(app, runs, actions, {
    selected: () => sidebar.view.list.selected,
    activate: () => shell.activateById(sidebar.id),
    openMenu: () => sidebar.openMenu(menu),
  });

  for (const command of MENU) {
    for (const item of command === null ? [{ type: "separator" as const }] : menuItems(command)) {
      menu.addItem(item);
      contextMenu.addItem({ ...item, selector: ".ddl-list" });
    }
  }

  shell.add(sidebar, "left", { rank: SIDEBAR_RANK, type: "Distributed Runs" });
  void state?.fetch(FILTER_KEY).then((stored) => {
    if (stored) sidebar.view.restore(parseFilter(stored));
  });

  const category = trans.__("Distributed Runs");
  for (const command of Object.values(COMMANDS)) {
    if (command === COMMANDS.more || command === COMMANDS.search) continue;
    for (const item of menuItems(command)) palette?.addItem({ ...item, category });
  }
  launcher?.add({ command: COMMANDS.panel, category: trans.__("Other"), rank: 10 });
  if (restorer) {
    restorer.add(sidebar, sidebar.id);
    for (const kind of Object.values(tabs)) kind.restore(restorer);
  }
}

/** The menu entries of a command: the export has one per format. */
function menuItems(command: string): { command: string; args?: { format: string } }[] {
  if (command !== COMMANDS.export) return [{ command }];
  return EXPORT_FORMATS.map((format) => ({ command, args: { format } }));
}
