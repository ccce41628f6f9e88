// @vitest-environment jsdom
/** The block of a search below its live view, in a document without a layout. */

import "../matchmedia";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { SearchUpdate } from "../../src/generated";
import { StoredSearch } from "../../src/search/stored";
import { h } from "../../src/view/dom";
import { findAll } from "../dom";
import { FakeFeed } from "../fakes";
import { begin, end, seconds } from "../layoutless";
import { search } from "../panel/rows";
import { full, NOW, trial } from "./trials";

let feed: FakeFeed;
let asked: number;
let inNotebook: string[];
let block: StoredSearch;

/** Displays the block, below the kernel's live view if that has a state. */
function display(live?: string): void {
  const area = h("div", { class: "jp-OutputArea" });
  if (live) area.append(h("section", { class: "ddl-run", "data-run": "s1", "data-state": live }));
  const api = {
    searchView: async (): Promise<SearchUpdate> => {
      asked += 1;
      return { version: "w-1", message: full([trial(0), trial(1)]), live: false };
    },
    searchBlock: async () => ({ data: { state: "FINISHED" }, behind: 0 }),
  };
  block = new StoredSearch({
    api,
    feed,
    id: "s1",
    saved: h("p", { class: "saved" }, "tuned RUNNING"),
    savedState: () => inNotebook.at(-1) ?? "RUNNING",
    save: (bundle) => inNotebook.push(String(bundle.state)),
    onStop: () => {},
    onStopTrial: () => {},
  });
  area.append(block.element);
  document.body.append(area);
  block.listChanged();
}

const saved = () => findAll(".saved").length;
const rows = () => findAll(".ddl-stored tbody tr").length;

beforeEach(() => {
  begin(NOW);
  [feed, asked, inNotebook] = [new FakeFeed(), 0, []];
});

afterEach(() => {
  block.dispose();
  end();
});

test("a search without a live view is drawn from the store", async () => {
  feed.set([], [search("s1", { live: false, state: "FINISHED" })]);
  display();
  await seconds(0.1);
  expect([saved(), rows()]).toEqual([0, 2]);
});

test("below the kernel's live view nothing is drawn, and its end is put into the notebook", async () => {
  feed.set([], [search("s1")]);
  display("RUNNING");
  await seconds(7);
  expect([saved(), asked, inNotebook]).toEqual([1, 0, []]);
  feed.set([], [search("s1", { live: false, state: "FINISHED" })]);
  await seconds(6);
  expect(inNotebook).toEqual(["FINISHED"]);
});
