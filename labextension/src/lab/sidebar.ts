/** The panel at the side: the list of runs in JupyterLab's frame, with buttons for what is chosen. */

import { CommandToolbarButton, Toolbar } from "@jupyterlab/ui-components";
import type { CommandRegistry } from "@lumino/commands";
import type { Message } from "@lumino/messaging";
import { type Menu, Panel, Widget } from "@lumino/widgets";
import type { Wish } from "../panel/arrange";
import { PanelView } from "../panel/panel";
import type { Translation } from "../translation";
import { COMMANDS } from "./commands";
import { runsIcon } from "./icon";
import { ID, type IRuns } from "./runs";

export interface SidebarOptions {
  runs: IRuns;
  commands: CommandRegistry;
  /** The filter is another one. */
  wished(wish: Wish): void;
}

export class Sidebar extends Panel {
  readonly view: PanelView;
  private readonly bar: Toolbar;
  private unwatch: (() => void) | null = null;

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
      trans,
      open: (run) => void commands.execute(COMMANDS.open, { run }),
      chosen: () => {
        for (const id of Object.values(COMMANDS)) commands.notifyCommandChanged(id);
      },
      wished: options.wished,
    });
    this.bar = toolbar(commands, trans);
    this.addWidget(this.bar);
    this.addWidget(body);
  }

  /** Opens a menu below the buttons. */
  openMenu(menu: Menu): void {
    const { left, bottom } = this.bar.node.getBoundingClientRect();
    menu.open(left, bottom);
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.unwatch?.();
    this.view.dispose();
    super.dispose();
  }

  protected override onActivateRequest(_: Message): void {
    this.view.list.focus();
  }

  protected override onAfterAttach(_: Message): void {
    this.look();
  }

  protected override onAfterShow(_: Message): void {
    this.look();
  }

  protected override onAfterHide(_: Message): void {
    this.look();
  }

  protected override onBeforeDetach(_: Message): void {
    this.unwatch?.();
    this.unwatch = null;
  }

  protected override onResize(_: Message): void {
    if (this.isVisible) this.view.list.resized();
  }

  private look(): void {
    if (this.isVisible && !this.unwatch) {
      this.unwatch = this.view.watch();
      this.view.list.resized();
    } else if (!this.isVisible && this.unwatch) {
      this.unwatch();
      this.unwatch = null;
    }
  }
}

/** Buttons for what is chosen; the rest is in a menu, which a right click on a row opens too. */
function toolbar(commands: CommandRegistry, trans: Translation): Toolbar {
  const bar = new Toolbar();
  bar.node.setAttribute("aria-label", trans.__("Chosen runs"));
  const add = (id: string) => bar.addItem(id, new CommandToolbarButton({ commands, id, label: "" }));
  for (const id of [COMMANDS.open, COMMANDS.stop, COMMANDS.compare, COMMANDS.notebook, COMMANDS.more]) add(id);
  bar.addItem("spacer", Toolbar.createSpacerItem());
  add(COMMANDS.refresh);
  return bar;
}
