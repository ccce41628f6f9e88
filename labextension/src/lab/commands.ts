/** The commands, for the palette, the launcher, context menus, the panel's toolbar and shortcuts. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { LabIcon } from "@jupyterlab/ui-components";
import { copyIcon, deleteIcon, downloadIcon, editIcon, ellipsesIcon, fileIcon, notebookIcon, refreshIcon, stopIcon, tagIcon } from "@jupyterlab/ui-components"; // biome-ignore format: icons
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";
import type { Listed, Row } from "../api";
import { EXPORT_FORMATS } from "../generated";
import { isReadable, isSearch } from "../panel/runlist";
import type { LabActions } from "./actions";
import { COMMANDS } from "./commandids";
import { compareIcon, runsIcon } from "./icon";
import type { IRuns } from "./runs";

/** The panel, as the commands use it. */
export interface CommandTarget {
  /** The runs and searches that are selected in the panel. */
  selected(): string[];
  activate(): void;
  /** Opens the menu for the selected runs. */
  openMenu(): void;
}

/**
 * Adds the commands. They act on the runs in their arguments `run` or `runs`, else on the selected ones. Open, stop and
 * delete act on searches too.
 */
export function addCommands(app: JupyterFrontEnd, runs: IRuns, actions: LabActions, panel: CommandTarget): void {
  const { commands } = app;
  const { trans, feed } = runs;

  const idsOf = (args: ReadonlyPartialJSONObject): string[] => {
    if (typeof args.run === "string") return [args.run];
    if (Array.isArray(args.runs)) return args.runs.filter((run): run is string => typeof run === "string");
    return panel.selected();
  };
  /** Without searches. One that is not listed may be stored all the same. */
  const runsOf = (args: ReadonlyPartialJSONObject) => idsOf(args).filter((id) => !feed.list.searches.has(id));
  const rowsOf = (args: ReadonlyPartialJSONObject): Row[] =>
    idsOf(args).flatMap((run) => feed.list.rows.get(run) ?? []);
  const listedOf = (args: ReadonlyPartialJSONObject): Listed[] => idsOf(args).flatMap((id) => feed.list.get(id) ?? []);
  /** Adds a command that acts on one readable run. */
  const addForOneRun = (id: string, label: string, icon: LabIcon, act: (run: string) => unknown) =>
    commands.addCommand(id, {
      label,
      icon,
      isEnabled: (args) => {
        const [row, other] = rowsOf(args);
        return row !== undefined && other === undefined && isReadable(row);
      },
      execute: (args) => {
        const [row] = rowsOf(args);
        return row && act(row.id);
      },
    });

  commands.addCommand(COMMANDS.panel, {
    label: trans.__("Distributed Runs"),
    caption: trans.__("Show the distributed runs of all kernels"),
    icon: runsIcon,
    execute: () => panel.activate(),
  });
  commands.addCommand(COMMANDS.more, {
    label: trans.__("More Actions for Distributed Runs"),
    icon: ellipsesIcon,
    execute: () => panel.openMenu(),
  });
  commands.addCommand(COMMANDS.refresh, {
    label: trans.__("Refresh Distributed Runs"),
    icon: refreshIcon,
    execute: () => feed.refresh(),
  });
  commands.addCommand(COMMANDS.open, {
    label: trans.__("Open Run"),
    icon: fileIcon,
    isEnabled: (args) => idsOf(args).length > 0,
    execute: (args) => {
      for (const id of idsOf(args)) {
        if (feed.list.searches.has(id)) actions.openSearch(id);
        else actions.openRun(id);
      }
    },
  });
  commands.addCommand(COMMANDS.search, {
    label: trans.__("Open Search"),
    icon: fileIcon,
    isEnabled: (args) => typeof args.search === "string" || listedOf(args).some(isSearch),
    execute: (args) => {
      const searches = listedOf(args).filter(isSearch);
      const ids = typeof args.search === "string" ? [args.search] : searches.map(({ id }) => id);
      for (const id of ids) actions.openSearch(id);
    },
  });
  commands.addCommand(COMMANDS.stop, {
    label: trans.__("Stop Run…"),
    icon: stopIcon,
    isEnabled: (args) => listedOf(args).some(canBeStopped),
    execute: (args) => {
      const rows = listedOf(args).filter(canBeStopped);
      const searches = rows.filter(isSearch).map(({ id }) => id);
      // A trial ends with its search.
      const runs = rows.filter((row) => !isSearch(row) && !searches.includes(feed.list.searchOf(row)?.id ?? ""));
      const ids = runs.map(({ id }) => id);
      return actions.stopAll(ids, searches);
    },
  });
  commands.addCommand(COMMANDS.compare, {
    label: trans.__("Compare Runs"),
    icon: compareIcon,
    isEnabled: (args) => runsOf(args).length > 1,
    execute: (args) => {
      const ids = runsOf(args);
      if (ids.length > 1) actions.compare(ids);
    },
  });
  addForOneRun(COMMANDS.rename, trans.__("Rename Run…"), editIcon, (run) => actions.rename(run));
  addForOneRun(COMMANDS.label, trans.__("Tag Run…"), tagIcon, (run) => actions.label(run));
  addForOneRun(COMMANDS.note, trans.__("Note on Run…"), editIcon, (run) => actions.note(run));
  addForOneRun(COMMANDS.notebook, trans.__("Open Notebook of Run"), notebookIcon, (run) => actions.openNotebook(run));
  addForOneRun(COMMANDS.copy, trans.__("Copy Run as Cell"), copyIcon, (run) => actions.copyAsCell(run));
  commands.addCommand(COMMANDS.export, {
    label: ({ format }) => trans.__("Export Run as %1", String(format ?? "json").toUpperCase()),
    icon: downloadIcon,
    isEnabled: (args) => rowsOf(args).length > 0 && rowsOf(args).every(isReadable),
    execute: (args) => {
      const format = EXPORT_FORMATS.find((known) => known === args.format) ?? "json";
      for (const { id } of rowsOf(args)) actions.exportRun(id, format);
    },
  });
  commands.addCommand(COMMANDS.delete, {
    label: trans.__("Delete Run…"),
    icon: deleteIcon,
    isEnabled: (args) => listedOf(args).length > 0 && listedOf(args).every((row) => !row.live),
    execute: (args) => actions.deleteAll(idsOf(args)),
  });
}

/** A LOST run may still be training where its driver outlives the kernel: the server looks for it. */
function canBeStopped(row: Listed): boolean {
  if (isSearch(row)) return row.live;
  return isReadable(row) && (row.live || (row.state === "LOST" && row.attachable));
}
