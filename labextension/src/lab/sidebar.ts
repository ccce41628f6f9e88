/** The panel as a widget of the side bar, with a toolbar for the selected runs. */

import { CommandToolbarButton, Toolbar } from "@jupyterlab/ui-components";
import type { CommandRegistry } from "@lumino/commands";
import type { Message } from "@lumino/messaging";
import { type Menu, Panel, Widget } from "@lumino/widgets";
import type { ListFilter } from "../panel/listfilter";
import { PanelView } from "../panel/panel";
import type { Translation } from "../translation";
import { COMMANDS } from "./commandids";
import { runsIcon } from "./icon";
import { ID, type IRuns } from "./runs";

export interface SidebarOptions {
  runs: IRuns;
  commands: CommandRegistry;
  filterChanged(filter: ListFilter): void;
  stopServer(name: string): void;
}

export class Sidebar extends Panel {
  readonly view: PanelView;
  private readonly toolbar: Toolbar;
  /** Ends watching the feed; null while the panel is hidden. */
  private stopWatching: (() => void) | null = null;

  constructor(options: SidebarOptions) {
    super();
    const { runs, commands } = options;
    const { trans } = runs;
    this.id = `${ID}-panel`;
    this.addClass("ddl-panel");
    this.title.icon = runsIcon;
    this.title.caption = trans.__("Distributed Runs");
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", trans.__("Distributed runs"));
    const body = new Widget();
    body.addClass("ddl-panel-body");
    this.view = new PanelView(body.node, {
      feed: runs.feed,
      servers: runs.servers,
      stopServer: options.stopServer,
      matches: (query) => runs.api.matches(query),
      trans,
      open: (id) => void commands.execute(COMMANDS.open, { run: id }),
      selectionChanged: () => {
        for (const id of Object.values(COMMANDS)) commands.notifyCommandChanged(id);
      },
      filterChanged: options.filterChanged,
    });
    this.toolbar = createToolbar(commands, trans);
    this.addWidget(this.toolbar);
    this.addWidget(body);
  }

  /** Opens a menu below the toolbar. */
  openMenu(menu: Menu): void {
    const { left, bottom } = this.toolbar.node.getBoundingClientRect();
    menu.open(left, bottom);
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.stopWatching?.();
    this.view.dispose();
    super.dispose();
  }

  protected override onActivateRequest(_: Message): void {
    this.view.list.focus();
  }

  protected override onAfterAttach(_: Message): void {
    this.updateWatching();
  }

  protected override onAfterShow(_: Message): void {
    this.updateWatching();
  }

  protected override onAfterHide(_: Message): void {
    this.updateWatching();
  }

  protected override onBeforeDetach(_: Message): void {
    this.stopWatching?.();
    this.stopWatching = null;
  }

  protected override onResize(_: Message): void {
    if (this.isVisible) this.view.list.resized();
  }

  private updateWatching(): void {
    if (this.isVisible && !this.stopWatching) {
      this.stopWatching = this.view.watch();
      this.view.list.resized();
    } else if (!this.isVisible && this.stopWatching) {
      this.stopWatching();
      this.stopWatching = null;
    }
  }
}

/** The most important commands; the others are in the menu, which a right click on a row opens too. */
function createToolbar(commands: CommandRegistry, trans: Translation): Toolbar {
  const toolbar = new Toolbar();
  toolbar.node.setAttribute("aria-label", trans.__("Selected runs"));
  // The commands are added later: what a button says of its own is text here.
  const addWord = (id: string, label: string, caption: string) =>
    toolbar.addItem(id, new CommandToolbarButton({ commands, id, label, caption }));
  addWord(COMMANDS.open, trans.__("Open"), trans.__("Open the selected runs"));
  addWord(COMMANDS.stop, trans.__("Stop"), trans.__("Stop the selected runs"));
  addWord(COMMANDS.compare, trans.__("Compare"), trans.__("Compare the selected runs"));
  toolbar.addItem("spacer", Toolbar.createSpacerItem());
  for (const id of [COMMANDS.more, COMMANDS.refresh]) {
    toolbar.addItem(id, new CommandToolbarButton({ commands, id, label: "" }));
  }
  return toolbar;
}
