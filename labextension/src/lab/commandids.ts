/** The ids of the commands; the shortcuts in schema/runs.json use them too. */

export const COMMANDS = {
  panel: "ddl-magics:show-panel",
  more: "ddl-magics:show-menu",
  refresh: "ddl-magics:refresh",
  open: "ddl-magics:open-run",
  search: "ddl-magics:open-search",
  stop: "ddl-magics:stop-run",
  compare: "ddl-magics:compare-runs",
  rename: "ddl-magics:rename-run",
  label: "ddl-magics:tag-run",
  note: "ddl-magics:note-run",
  notebook: "ddl-magics:open-notebook",
  copy: "ddl-magics:copy-as-cell",
  export: "ddl-magics:export-run",
  delete: "ddl-magics:delete-run",
} as const;
