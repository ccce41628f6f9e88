/** Runs that go on, in JupyterLab's panel of running terminals and kernels. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { IRunningSessionManagers } from "@jupyterlab/running";
import type { Run } from "../api";
import { progress, title } from "../panel/words";
import { COMMANDS } from "./commands";
import { runsIcon } from "./icon";
import { ID, IRuns } from "./runs";

export const runningPlugin: JupyterFrontEndPlugin<void> = {
  id: `${ID}:running`,
  description: "Lists the distributed runs that go on beside running kernels.",
  autoStart: true,
  requires: [IRuns],
  optional: [IRunningSessionManagers],
  activate: (app, runs: IRuns, managers: IRunningSessionManagers | null) => {
    const { feed, trans } = runs;
    managers?.add({
      name: trans.__("Distributed Runs"),
      running: () => feed.list.live().map((run) => item(app, runs, run)),
      // JupyterLab asks before it shuts all down; a second question would be one too many.
      shutdownAll: () => {
        for (const { id } of feed.list.live()) void runs.api.stop(id).then(() => feed.refresh());
      },
      refreshRunning: () => feed.refresh(),
      runningChanged: feed.changed,
      shutdownLabel: trans.__("Stop Run…"),
      shutdownAllLabel: trans.__("Stop All"),
      shutdownAllConfirmationText: trans.__("Stop all runs after their current steps? What they learnt is kept."),
    });
  },
};

function item(app: JupyterFrontEnd, { trans }: IRuns, run: Run) {
  return {
    icon: () => runsIcon,
    label: () => title(run),
    detail: () => progress(run, trans) || run.state,
    labelTitle: () => [title(run), run.state, run.cluster, run.notebook].filter(Boolean).join("\n"),
    open: () => void app.commands.execute(COMMANDS.open, { run: run.id }),
    shutdown: () => void app.commands.execute(COMMANDS.stop, { run: run.id }),
  };
}
