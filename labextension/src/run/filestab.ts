/** The tab "Files": what the cell has written. */

import type { RunDetails } from "../generated";
import type { Translation } from "../translation";
import { h, scrollBox } from "../view/dom";
import { byteSize } from "./properties";

export function fileNodes({ cell_files, name, live }: RunDetails, trans: Translation): Node[] {
  if (!cell_files.length) return [h("p", { class: "ddl-runpage-dim" }, emptyText(live, trans))];
  const heads = [trans.__("File"), trans.__("Size"), trans.__("Where it is")];
  const rows = cell_files.map((file) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, file.name),
      h("td", {}, byteSize(file.size)),
      h("td", {}, file.path ?? place(name, file.name, live, trans)),
    ),
  );
  const head = h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)));
  const table = h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows));
  return [scrollBox("ddl-runpage-table", trans.__("Files that the cell has written"), table)];
}

function emptyText(live: boolean, trans: Translation): string {
  return live
    ? trans.__("The cell has written no file yet. Files come back when the run ends.")
    : trans.__("The cell has written no file.");
}

function place(run: string, file: string, live: boolean, trans: Translation): string {
  return live ? trans.__("on the cluster") : trans.__("on the cluster: %1 brings it here", `${run}.fetch("${file}")`);
}
