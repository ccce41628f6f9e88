/** Tabs of the main area: a run, and runs over each other. They come back with the page. */

import type { ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";
import { MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { SplitPanel, Widget } from "@lumino/widgets";
import { title } from "../panel/words";
import { COMMANDS } from "./commands";
import { runsIcon } from "./icon";
import type { IRuns } from "./runs";

/** What draws into a tab, once its script is there. */
export type Draw = (host: HTMLElement, runs: string[]) => Promise<{ dispose(): void }>;

class PageWidget extends Widget {
  private drawn: { dispose(): void } | null = null;

  constructor(
    readonly runs: string[],
    draw: Draw,
  ) {
    super();
    this.addClass("ddl-page");
    void draw(this.node, runs).then((page) => {
      this.drawn = page;
      if (this.isDisposed) page.dispose();
    });
  }

  override dispose(): void {
    if (!this.isDisposed) this.drawn?.dispose();
    super.dispose();
  }
}

type Tab = MainAreaWidget<PageWidget>;

/** The tabs of one kind; each set of runs has one at most. */
export class PageTabs {
  private readonly tracker: WidgetTracker<Tab>;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly runs: IRuns,
    private readonly kind: "run" | "compare",
    private readonly draw: Draw,
  ) {
    this.tracker = new WidgetTracker<Tab>({ namespace: `ddl-magics-${kind}` });
    runs.feed.changed.connect(() => {
      this.tracker.forEach((tab) => {
        this.name(tab);
      });
    });
  }

  /** Opens those that were open when the page was left. */
  restore(restorer: ILayoutRestorer): void {
    const [command, key] = this.kind === "run" ? [COMMANDS.open, "run"] : [COMMANDS.compare, "runs"];
    void restorer.restore(this.tracker, {
      command,
      args: ({ content }) => ({ [key]: this.kind === "run" ? (content.runs[0] ?? "") : content.runs }),
      name: ({ content }) => content.runs.join("+"),
    });
  }

  open(runs: string[]): Tab {
    const id = `ddl-magics-${this.kind}-${runs.join("+")}`;
    let tab = this.tracker.find((one) => one.id === id);
    if (!tab) {
      tab = new MainAreaWidget({ content: new PageWidget(runs, this.draw) });
      tab.toolbar.hide(); // it is empty
      tab.id = id;
      tab.title.icon = runsIcon;
      tab.title.closable = true;
      this.name(tab);
      void this.tracker.add(tab);
    }
    const { shell } = this.app;
    if (!tab.isAttached && hasTabs(this.app)) shell.add(tab, "main");
    else if (!tab.isAttached) {
      // Notebook 7 has one document in its main area, and room below it.
      shell.add(tab, "down");
      requestAnimationFrame(() => heighten(tab));
    }
    shell.activateById(tab.id);
    return tab;
  }

  private name(tab: Tab): void {
    const names = tab.content.runs.map((run) => {
      const row = this.runs.feed.list.rows.get(run);
      return row ? title(row) : run;
    });
    tab.title.label = names.join(" | ");
    tab.title.caption = tab.content.runs.join("\n");
  }
}

/** Whether documents are tabs of one page, as in JupyterLab. */
function hasTabs(app: JupyterFrontEnd): boolean {
  return "layoutModified" in app.shell;
}

/** Makes the part of the page that the tab is in half as high as the page: Notebook 7 leaves it a line. */
function heighten(tab: Tab): void {
  let parent = tab.parent;
  while (parent && !(parent instanceof SplitPanel && parent.orientation === "vertical")) parent = parent.parent;
  if (parent instanceof SplitPanel && tab.node.offsetHeight < parent.node.offsetHeight / 4) {
    parent.setRelativeSizes([1, 1]);
  }
}
