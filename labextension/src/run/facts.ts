/** What is known of a run, as sections of names and values; and why it failed. */

import type { RunDetails } from "../api";
import { measured, options, surroundings } from "../compare/differences";
import { elapsed } from "../panel/words";
import type { Translation } from "../translation";
import { h } from "../view/dom";
import { duration, plural, UNKNOWN } from "../view/format";
import type { Failure } from "../view/messages";
import { culprit } from "../view/notice";

type Fact = [name: string, value: string];

/** A heading and what stands below it; a section without facts is left out. */
export interface Section {
  title: string;
  facts: Fact[];
}

export function sections(details: RunDetails, trans: Translation, now: number): Section[] {
  const all = [
    { title: trans.__("Run"), facts: identity(details, trans) },
    { title: trans.__("Times"), facts: times(details, trans, now) },
    { title: trans.__("Options"), facts: options({ details }) },
    { title: trans.__("Where it ran"), facts: [...surroundings({ details }, trans), ...process(details, trans)] },
    { title: trans.__("Files"), facts: files(details, trans) },
  ];
  return all.filter(({ facts }) => facts.length);
}

export function factParts(details: RunDetails, trans: Translation): Node[] {
  const tables = sections(details, trans, Date.now() / 1000).map(({ title, facts }) => {
    const rows = facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value || UNKNOWN)));
    return h("section", {}, h("h2", {}, title), h("dl", {}, ...rows));
  });
  return [...failure(details, trans), h("div", { class: "ddl-runpage-facts" }, ...tables)];
}

function identity(details: RunDetails, trans: Translation): Fact[] {
  const facts: Fact[] = [[trans.__("name"), details.name]];
  if (details.title) facts.push([trans.__("title"), details.title]);
  if (details.labels.length) facts.push([trans.__("tags"), details.labels.join(", ")]);
  return [...facts, [trans.__("id"), details.id], [trans.__("state"), details.state], ...measured(details.metrics)];
}

function times(details: RunDetails, trans: Translation, now: number): Fact[] {
  const clock = (seconds: number) => new Date(seconds * 1000).toLocaleString();
  const facts: Fact[] = [[trans.__("begun"), clock(details.created)]];
  if (details.ended !== null) facts.push([trans.__("ended"), clock(details.ended)]);
  if (details.live || details.ended !== null) facts.push([trans.__("duration"), duration(elapsed(details, now))]);
  return facts;
}

function process({ owner, place }: RunDetails, trans: Translation): Fact[] {
  const facts: Fact[] = Object.entries(place).map(([name, value]) => [name, String(value)]);
  if (owner.pid == null) return facts;
  const words = trans.__("process %1 on %2", owner.pid, owner.host ?? UNKNOWN);
  return [...facts, [trans.__("kernel"), owner.alive ? words : trans.__("%1, gone", words)]];
}

function files({ files: stored, size }: RunDetails, trans: Translation): Fact[] {
  const events: Fact = [trans.__("events"), bytes(size)];
  return [events, ...stored.map(({ name = "", size: held = 0 }): Fact => [name, bytes(held)])];
}

/** 312 bytes, 4.1 kB, 52 MB. */
export function bytes(count: number): string {
  if (count < 1000) return plural(count, "byte");
  const power = Math.min(3, Math.floor(Math.log10(count) / 3));
  return `${Number((count / 1000 ** power).toPrecision(2))} ${["", "kB", "MB", "GB"][power]}`;
}

/** Who failed and why, with the traceback. The message ends in what to do about it where that is known. */
function failure({ cause }: RunDetails, trans: Translation): Node[] {
  if (!cause) return [];
  const { rank = -1, host = "", kind = "error", message = "", traceback = "" } = cause as Partial<NonNullable<Failure>>;
  const who = culprit({ rank, host, kind, message, traceback });
  const words = h("p", {}, h("strong", {}, who), `: ${message}`);
  const label = trans.__("Traceback");
  const lines = h(
    "pre",
    { tabindex: 0, role: "group", "aria-label": label, class: "ddl-code ddl-runpage-code" },
    traceback,
  );
  const title = h("h2", {}, trans.__("Failure"));
  return [h("section", { class: "ddl-runpage-failure" }, title, words, ...(traceback ? [lines] : []))];
}
