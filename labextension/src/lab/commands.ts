/** What can be done, as commands: for the palette, the launcher, the menu of a row, the panel's buttons and shortcuts. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { LabIcon } from "@jupyterlab/ui-components";
import { copyIcon, deleteIcon, downloadIcon, editIcon, ellipsesIcon, fileIcon, notebookIcon, refreshIcon, stopIcon, tagIcon, treeViewIcon } from "@jupyterlab/ui-components"; // biome-ignore format: icons
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";
import type { ExportFormat, Row } from "../api";
import { readable } from "../panel/runlist";
import type { LabActions } from "./actions";
import { runsIcon } from "./icon";
import type { IRuns } from "./runs";

export const COMMANDS = {
  panel: "ddl-magics:show-panel",
  more: "ddl-magics:show-menu",
  refresh: "ddl-magics:refresh",
  open: "ddl-magics:open-run",
  stop: "ddl-magics:stop-run",
  compare: "ddl-magics:compare-runs",
  rename: "ddl-magics:rename-run",
  label: "ddl-magics:tag-run",
  notebook: "ddl-magics:open-notebook",
  copy: "ddl-magics:copy-as-cell",
  export: "ddl-magics:export-run",
  remove: "ddl-magics:delete-run",
} as const;

export const FORMATS: readonly ExportFormat[] = ["csv", "json", "html"];

/** Runs that a command is about: those of its arguments, else those that are chosen in the panel. */
export interface Choice {
  chosen(): string[];
  /** Shows the panel. */
  show(): void;
  /** Opens the menu of what is chosen. */
  menu(): void;
}

export function addCommands(app: JupyterFrontEnd, runs: IRuns, actions: LabActions, choice: Choice): void {
  const { commands } = app;
  const { trans, feed } = runs;

  const about = (args: ReadonlyPartialJSONObject): string[] => {
    if (typeof args.run === "string") return [args.run];
    if (Array.isArray(args.runs)) return args.runs.filter((run): run is string => typeof run === "string");
    return choice.chosen();
  };
  const rows = (args: ReadonlyPartialJSONObject): Row[] => about(args).flatMap((run) => feed.list.rows.get(run) ?? []);
  /** A command about one run that can be read. */
  const one = (id: string, label: string, icon: LabIcon, act: (run: string) => unknown) =>
    commands.addCommand(id, {
      label,
      icon,
      isEnabled: (args) => {
        const [row, more] = rows(args);
        return row !== undefined && more === undefined && readable(row);
      },
      execute: (args) => {
        const [run] = about(args);
        return run === undefined ? undefined : act(run);
      },
    });

  commands.addCommand(COMMANDS.panel, {
    label: trans.__("Distributed Runs"),
    caption: trans.__("Show the distributed runs of all kernels"),
    icon: runsIcon,
    execute: () => choice.show(),
  });
  commands.addCommand(COMMANDS.more, {
    label: trans.__("More Actions for Distributed Runs"),
    icon: ellipsesIcon,
    execute: () => choice.menu(),
  });
  commands.addCommand(COMMANDS.refresh, {
    label: trans.__("Refresh Distributed Runs"),
    icon: refreshIcon,
    execute: () => feed.refresh(),
  });
  commands.addCommand(COMMANDS.open, {
    label: trans.__("Open Run"),
    icon: fileIcon,
    isEnabled: (args) => about(args).length > 0,
    execute: (args) => {
      for (const run of about(args)) actions.openRun(run);
    },
  });
  commands.addCommand(COMMANDS.stop, {
    label: trans.__("Stop Run…"),
    icon: stopIcon,
    // A run whose kernel is gone may train on: the server looks for it.
    isEnabled: (args) => rows(args).some(stoppable),
    execute: (args) =>
      actions.stopAll(
        rows(args)
          .filter(stoppable)
          .map(({ id }) => id),
      ),
  });
  commands.addCommand(COMMANDS.compare, {
    label: trans.__("Compare Runs"),
    icon: treeViewIcon,
    isEnabled: (args) => about(args).length > 1,
    execute: (args) => {
      const chosen = about(args);
      if (chosen.length > 1) actions.compare(chosen);
    },
  });
  one(COMMANDS.rename, trans.__("Rename Run…"), editIcon, (run) => actions.rename(run));
  one(COMMANDS.label, trans.__("Tag Run…"), tagIcon, (run) => actions.label(run));
  one(COMMANDS.notebook, trans.__("Open Notebook of Run"), notebookIcon, (run) => actions.openNotebook(run));
  one(COMMANDS.copy, trans.__("Copy Run as Cell"), copyIcon, (run) => actions.copyAsCell(run));
  commands.addCommand(COMMANDS.export, {
    label: ({ format }) => trans.__("Export Run as %1", String(format ?? "json").toUpperCase()),
    icon: downloadIcon,
    isEnabled: (args) => rows(args).length > 0 && rows(args).every(readable),
    execute: (args) => {
      const format = FORMATS.find((known) => known === args.format) ?? "json";
      for (const run of about(args)) actions.exportRun(run, format);
    },
  });
  commands.addCommand(COMMANDS.remove, {
    label: trans.__("Delete Run…"),
    icon: deleteIcon,
    isEnabled: (args) => rows(args).length > 0 && rows(args).every((row) => !row.live),
    execute: (args) => actions.removeAll(about(args)),
  });
}

function stoppable(row: Row): boolean {
  return readable(row) && (row.live || (row.state === "LOST" && row.attachable));
}
