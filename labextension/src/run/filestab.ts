/** The tab "Files": the trained model, to download, and what the cell has written. */

import type { RunActions } from "../actions";
import type { RunDetails } from "../generated";
import type { Translation } from "../translation";
import { button, h, scrollBox } from "../view/dom";
import { byteSize } from "./properties";

type Download = Pick<RunActions, "downloadFile">;

export function fileNodes(details: RunDetails, actions: Download, trans: Translation): Node[] {
  return [...trainedNodes(details, actions, trans), ...cellFileNodes(details, trans)];
}

/** The trained models and weights, which are files of the run in the store. */
function trainedNodes({ id, files }: RunDetails, actions: Download, trans: Translation): Node[] {
  const download = (file: string) =>
    button(trans.__("Download"), () => actions.downloadFile(id, file), {
      class: "ddl-runpage-button",
      "aria-label": trans.__("Download %1", file),
    });
  const trained = files.filter(({ name }) => /^(model|weights)-/.test(name));
  const rows = trained.map(({ name, size }) =>
    h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, byteSize(size)), h("td", {}, download(name))),
  );
  if (!rows.length) return [];
  const heads = [trans.__("Trained"), trans.__("Size"), ""].map((text) => h(text ? "th" : "td", {}, text));
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows));
  return [scrollBox("ddl-runpage-table", trans.__("What the run has trained"), table)];
}

function cellFileNodes({ cell_files, name, live }: RunDetails, trans: Translation): Node[] {
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
    ? trans.__("The cell itself has written no file yet. Files come back when the run ends.")
    : trans.__("The cell itself has written no file.");
}

function place(run: string, file: string, live: boolean, trans: Translation): string {
  return live ? trans.__("on the cluster") : trans.__("on the cluster: %1 brings it here", `${run}.fetch("${file}")`);
}
