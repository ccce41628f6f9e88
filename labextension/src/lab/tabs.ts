/** Tabs of the main area, for a run, a search or a comparison. They are restored when the page is reloaded. */

import type { ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";
import { MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { SplitPanel, Widget } from "@lumino/widgets";
import { title } from "../panel/format";
import { messageOf } from "../polling";
import { COMMANDS } from "./commandids";
import { runsIcon } from "./icon";
import type { IRuns } from "./runs";

/** The command that opens a tab again, and its argument. */
const RESTORED = {
  run: { command: COMMANDS.open, argument: "run" },
  search: { command: COMMANDS.search, argument: "search" },
  compare: { command: COMMANDS.compare, argument: "runs" },
} as const;

/** Draws a page into a tab, once its script has been loaded. */
export type PageFactory = (host: HTMLElement, runs: string[]) => Promise<{ dispose(): void }>;

class PageWidget extends Widget {
  private page: { dispose(): void } | null = null;

  constructor(
    readonly runs: string[],
    createPage: PageFactory,
  ) {
    super();
    this.addClass("ddl-page");
    createPage(this.node, runs).then(
      (page) => {
        this.page = page;
        if (this.isDisposed) page.dispose();
      },
      // Its script belongs to another version, where ddl_magics was updated since the page was opened.
      (error: unknown) => {
        this.node.textContent = `This tab cannot be shown (${messageOf(error)}): reload the page in your browser.`;
      },
    );
  }

  override dispose(): void {
    if (!this.isDisposed) this.page?.dispose();
    super.dispose();
  }
}

type Tab = MainAreaWidget<PageWidget>;

/** The tabs of one kind; there is at most one per set of runs. */
export class PageTabs {
  private readonly tracker: WidgetTracker<Tab>;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly runs: IRuns,
    private readonly kind: keyof typeof RESTORED,
    private readonly createPage: PageFactory,
  ) {
    this.tracker = new WidgetTracker<Tab>({ namespace: `ddl-magics-${kind}` });
    runs.feed.changed.connect(() => {
      this.tracker.forEach((tab) => {
        this.updateTitle(tab);
      });
    });
  }

  /** Opens the tabs of the previous session. */
  restore(restorer: ILayoutRestorer): void {
    const { command, argument } = RESTORED[this.kind];
    void restorer.restore(this.tracker, {
      command,
      args: ({ content: { runs } }) => ({ [argument]: this.kind === "compare" ? runs : (runs[0] ?? "") }),
      name: ({ content }) => content.runs.join("+"),
    });
  }

  /** Opens the tab of these runs, or activates it. */
  open(runs: string[]): void {
    const id = `ddl-magics-${this.kind}-${runs.join("+")}`;
    let tab = this.tracker.find((open) => open.id === id);
    if (!tab) {
      tab = new MainAreaWidget({ content: new PageWidget(runs, this.createPage) });
      tab.toolbar.hide(); // it is empty
      tab.id = id;
      tab.title.icon = runsIcon;
      tab.title.closable = true;
      this.updateTitle(tab);
      void this.tracker.add(tab);
    }
    const { shell } = this.app;
    if (!tab.isAttached && "layoutModified" in shell) shell.add(tab, "main");
    else if (!tab.isAttached) {
      // The main area of Notebook 7 has no tabs, but one document: the tab goes below it.
      shell.add(tab, "down");
      requestAnimationFrame(() => growDownArea(tab));
    }
    shell.activateById(tab.id);
  }

  private updateTitle(tab: Tab): void {
    const titles = tab.content.runs.map((run) => {
      const row = this.runs.feed.list.get(run);
      return row ? title(row) : run;
    });
    tab.title.label = titles.join(" | ");
    tab.title.caption = tab.content.runs.join("\n");
  }
}

/** Gives the area below the document half of the page: Notebook 7 opens it only one line high. */
function growDownArea(tab: Tab): void {
  let parent = tab.parent;
  while (parent && !(parent instanceof SplitPanel && parent.orientation === "vertical")) parent = parent.parent;
  if (parent instanceof SplitPanel && tab.node.offsetHeight < parent.node.offsetHeight / 4) {
    parent.setRelativeSizes([1, 1]);
  }
}
