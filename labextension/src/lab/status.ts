/** The plugin of the status bar, which shows live runs, and of the notification when a run ends. */

import type { JupyterFrontEndPlugin } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import { IStatusBar } from "@jupyterlab/statusbar";
import { Widget } from "@lumino/widgets";
import type { RunRow, SearchRow } from "../generated";
import { activity, progressOf, title, wordOf } from "../panel/format";
import { isSearch } from "../panel/runlist";
import { h, setText } from "../view/dom";
import { COMMANDS } from "./commandids";
import { ID, IRuns } from "./runs";

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: `${ID}:status`,
  description: "Shows live distributed runs in the status bar, and notifies when one ends.",
  autoStart: true,
  requires: [IRuns],
  optional: [IStatusBar],
  activate: (app, runs: IRuns, bar: IStatusBar | null) => {
    const { feed, trans, settings } = runs;
    const button = h("button", { type: "button", class: "ddl-status-item" });
    button.addEventListener("click", () => void app.commands.execute(COMMANDS.panel));
    const draw = () => {
      const live = feed.list.liveWork();
      const [first, second] = live;
      setText(
        button,
        first && !second ? summary(first, runs) : trans.__("Distributed runs: %1", activity(live, trans)),
      );
      button.title = live.map((run) => summary(run, runs)).join("\n");
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
      const callback = () => void app.commands.execute(COMMANDS.open, { run: run.id });
      const actions = [{ label: trans.__("Open"), callback }];
      Notification.emit(endMessage(run), kind, { autoClose: kind === "warning" ? false : 8000, actions });
    });
  },
};

function summary(run: RunRow | SearchRow, { trans }: IRuns): string {
  return `${title(run)}: ${progressOf(run, trans) || wordOf(run).toLowerCase()}`;
}

function endMessage(run: RunRow | SearchRow): string {
  const why = isSearch(run) ? run.message : run.failure;
  return `${title(run)}: ${run.state}${why ? ` (${why})` : ""}`;
}
