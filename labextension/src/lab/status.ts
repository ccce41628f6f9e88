/** The status bar while something runs, and a word when it ends. */

import type { JupyterFrontEndPlugin } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import { IStatusBar } from "@jupyterlab/statusbar";
import { Widget } from "@lumino/widgets";
import type { Run } from "../api";
import { progress, title } from "../panel/words";
import { h, text } from "../view/dom";
import { COMMANDS } from "./commands";
import { ID, IRuns } from "./runs";

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: `${ID}:status`,
  description: "Shows the distributed runs that go on in the status bar, and tells when one ends.",
  autoStart: true,
  requires: [IRuns],
  optional: [IStatusBar],
  activate: (app, runs: IRuns, bar: IStatusBar | null) => {
    const { feed, trans, settings } = runs;
    const button = h("button", { type: "button", class: "ddl-status-item" });
    button.addEventListener("click", () => void app.commands.execute(COMMANDS.panel));
    const draw = () => {
      const live = feed.list.live();
      text(button, live[0] && live.length === 1 ? alone(live[0], runs) : trans._n("%1 run", "%1 runs", live.length));
      button.title = live.map((run) => alone(run, runs)).join("\n");
    };
    feed.changed.connect(draw);
    draw();
    bar?.registerStatusItem(statusPlugin.id, {
      item: new Widget({ node: h("div", { class: "ddl-status" }, button) }),
      align: "left",
      rank: 900,
      isActive: () => feed.list.live().length > 0,
      activeStateChanged: feed.changed,
    });
    feed.ended.connect((_, run) => {
      if (!settings.notifyAtEnd) return;
      const kind = run.state === "FINISHED" ? "success" : run.state === "STOPPED" ? "info" : "warning";
      const actions = [
        { label: trans.__("Open"), callback: () => void app.commands.execute(COMMANDS.open, { run: run.id }) },
      ];
      Notification.emit(ending(run), kind, { autoClose: kind === "warning" ? false : 8000, actions });
    });
  },
};

function alone(run: Run, { trans }: IRuns): string {
  return `${title(run)}: ${progress(run, trans) || run.state.toLowerCase()}`;
}

function ending(run: Run): string {
  return `${title(run)}: ${run.state}${run.failure ? ` (${run.failure})` : ""}`;
}
