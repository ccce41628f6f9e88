/** The plugin that lists live runs in JupyterLab's panel of running terminals and kernels. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { IRunningSessionManagers } from "@jupyterlab/running";
import type { RunRow, SearchRow } from "../generated";
import { progressOf, title, wordOf } from "../panel/format";
import { isSearch } from "../panel/runlist";
import { COMMANDS } from "./commandids";
import { runsIcon } from "./icon";
import { ID, IRuns } from "./runs";

export const runningPlugin: JupyterFrontEndPlugin<void> = {
  id: `${ID}:running`,
  description: "Lists live distributed runs beside running kernels.",
  autoStart: true,
  requires: [IRuns],
  optional: [IRunningSessionManagers],
  activate: (app, runs: IRuns, managers: IRunningSessionManagers | null) => {
    const { feed, trans } = runs;
    managers?.add({
      name: trans.__("Distributed Runs"),
      running: () => feed.list.liveWork().map((run) => runningItem(app, runs, run)),
      // JupyterLab has already asked for a confirmation.
      shutdownAll: () => {
        for (const row of feed.list.liveWork()) {
          void runs.api.stop(row.id, isSearch(row) ? "searches" : "runs").then(() => feed.refresh());
        }
      },
      refreshRunning: () => feed.refresh(),
      runningChanged: feed.changed,
      shutdownLabel: trans.__("Stop Run…"),
      shutdownAllLabel: trans.__("Stop All"),
      shutdownAllConfirmationText: trans.__("Stop all runs after their current steps? Their models so far are kept."),
    });
  },
};

function runningItem(app: JupyterFrontEnd, { trans }: IRuns, run: RunRow | SearchRow) {
  return {
    icon: () => runsIcon,
    label: () => title(run),
    detail: () => progressOf(run, trans) || wordOf(run),
    labelTitle: () => [title(run), wordOf(run), run.cluster, run.notebook].filter(Boolean).join("\n"),
    open: () => void app.commands.execute(COMMANDS.open, { run: run.id }),
    shutdown: () => void app.commands.execute(COMMANDS.stop, { run: run.id }),
  };
}
