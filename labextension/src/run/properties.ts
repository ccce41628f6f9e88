/** The tab "Details": everything known about a run as sections of names and values, and why it failed. */

import { environmentEntries, metricEntries, optionEntries, timeEntries } from "../compare/differences";
import type { RunDetails } from "../generated";
import type { Translation } from "../translation";
import { h } from "../view/dom";
import { dateTime, plural, UNKNOWN } from "../view/format";
import { failureSummary } from "../view/notice";
import { stateWord } from "../view/phases";
import { codeElement } from "./celltab";

type Property = [name: string, value: string];

export interface Section {
  title: string;
  properties: Property[];
}

/** The sections that have properties. `started`: when the run first was RUNNING, if that is known. */
export function sections(
  details: RunDetails,
  trans: Translation,
  now: number,
  started: number | null = null,
): Section[] {
  const environment = [...environmentEntries({ details }, trans), ...processes(details, trans)];
  const all = [
    { title: trans.__("Run"), properties: identity(details, trans) },
    { title: trans.__("Times"), properties: times(details, trans, now, started) },
    { title: trans.__("Options"), properties: optionEntries({ details }) },
    { title: trans.__("Environment"), properties: environment },
    { title: trans.__("Files"), properties: files(details, trans) },
  ];
  return all.filter(({ properties }) => properties.length);
}

export function detailNodes(details: RunDetails, trans: Translation, started: number | null = null): Node[] {
  const kept = details.provenance.map((section) => provenanceNode(section));
  const elements = sections(details, trans, Date.now() / 1000, started).map(({ title, properties }) => {
    return h("section", {}, h("h2", {}, title), propertyList(properties));
  });
  const note = details.note ? [h("p", { class: "ddl-runpage-note" }, details.note)] : [];
  return [...note, ...failureNodes(details, trans), h("div", { class: "ddl-runpage-facts" }, ...elements), ...kept];
}

/** A section of what the run ran with, folded: packages alone are more than all the rest. */
function provenanceNode({ title, entries, text }: RunDetails["provenance"][number]): HTMLElement {
  const code = text ? [codeElement(text, title)] : [];
  const count = entries.length > 1 ? ` (${entries.length})` : "";
  const list = entries.length ? [h("div", { class: "ddl-runpage-facts" }, propertyList(entries))] : [];
  return h("details", { class: "ddl-runpage-kept" }, h("summary", {}, `${title}${count}`), ...list, ...code);
}

function propertyList(properties: readonly Property[]): HTMLElement {
  const rows = properties.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value || UNKNOWN)));
  return h("dl", {}, ...rows);
}

function identity(details: RunDetails, trans: Translation): Property[] {
  const found: Property[] = [[trans.__("name"), details.name]];
  if (details.title) found.push([trans.__("title"), details.title]);
  if (details.labels.length) found.push([trans.__("tags"), details.labels.join(", ")]);
  return [
    ...found,
    [trans.__("id"), details.id],
    [trans.__("state"), stateWord(details.state)],
    ...metricEntries(details.metrics),
  ];
}

function times(details: RunDetails, trans: Translation, now: number, started: number | null): Property[] {
  const found: Property[] = [[trans.__("created"), dateTime(details.created)]];
  if (details.ended !== null) found.push([trans.__("ended"), dateTime(details.ended)]);
  if (!details.live && details.ended === null) return found;
  return [...found, ...timeEntries(details.created, started, details.ended ?? now, trans)];
}

function processes({ owner, driver_address }: RunDetails, trans: Translation): Property[] {
  const found: Property[] = Object.entries(driver_address).map(([name, value]) => [name, String(value)]);
  if (owner.pid === null) return found;
  const kernel = trans.__("process %1 on %2", owner.pid, owner.host ?? UNKNOWN);
  return [...found, [trans.__("kernel"), owner.alive ? kernel : trans.__("%1, gone", kernel)]];
}

function files({ files: stored, size }: RunDetails, trans: Translation): Property[] {
  return [[trans.__("events"), byteSize(size)], ...stored.map((file): Property => [file.name, byteSize(file.size)])];
}

/** 312 bytes, 4.1 kB, 52 MB. */
export function byteSize(count: number): string {
  if (count < 1000) return plural(count, "byte");
  const power = Math.min(3, Math.floor(Math.log10(count) / 3));
  return `${Number((count / 1000 ** power).toPrecision(2))} ${["", "kB", "MB", "GB"][power]}`;
}

function failureNodes({ cause }: RunDetails, trans: Translation): Node[] {
  if (!cause) return [];
  const { message, traceback } = cause;
  const summary = h("p", {}, h("strong", {}, failureSummary(cause)), `: ${message}`);
  const code = traceback ? [codeElement(traceback, trans.__("Traceback"))] : [];
  return [h("section", { class: "ddl-runpage-failure" }, h("h2", {}, trans.__("Failure")), summary, ...code)];
}
