// @vitest-environment jsdom
/** The block of a run below its live view, in a document without a layout. */

import "../matchmedia";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ApiError } from "../../src/api";
import type { Block, RunState, View } from "../../src/generated";
import { type Bundle, StoredRun } from "../../src/run/stored";
import { h } from "../../src/view/dom";
import { find, findAll } from "../dom";
import { FakeFeed } from "../fakes";
import { begin, end, seconds } from "../layoutless";
import { full, NOW, STATE, view } from "../messages";
import { run } from "../panel/rows";

const LOST: RunState = { ...STATE, state: "LOST", message: "Its kernel has ended, and the run with it.", ended: NOW };

let feed: FakeFeed;
let answers: (View | Error)[];
let asked = 0;
let block: StoredRun;
/** What the server answers, and the states that the block of the notebook has got. */
let blocks: Block[];
let inNotebook: string[];

/** Displays the block, below the kernel's live view if that has a state. */
function display(live?: string): void {
  const area = h("div", { class: "jp-OutputArea" });
  if (live) area.append(h("section", { class: "ddl-run", "data-run": "r1", "data-state": live }));
  const api = {
    view: async () => {
      asked += 1;
      const answer = answers.shift() ?? new Promise<View>(() => {});
      if (answer instanceof Error) throw answer;
      return answer;
    },
    block: async () => blocks.shift() ?? { data: null, behind: 0.5 },
  };
  const saved = h("p", { class: "saved" }, "PREFLIGHT r1");
  const savedState = () => inNotebook.at(-1) ?? "PREFLIGHT";
  const save = (bundle: Bundle) => inNotebook.push(String(bundle.state));
  block = new StoredRun({ api, feed, id: "r1", saved, savedState, save, onStop: () => {} });
  area.append(block.element);
  document.body.append(area);
  block.listChanged();
}

const texts = () => findAll(".ddl-stored .ddl-chip, .saved").map(({ textContent }) => textContent);

beforeEach(() => {
  begin(NOW);
  [feed, answers, asked] = [new FakeFeed(), [], 0];
  [blocks, inNotebook] = [[], []];
});

afterEach(() => {
  block.dispose();
  end();
});

test("a run without a live view is drawn from the store, and a lost one says why and offers no Stop", async () => {
  feed.set([run("r1", { state: "LOST", live: false })]);
  answers = [view(full(1, { state: { ...LOST, next: { text: "To continue,", code: "%%distributed --resume r1" } } }))];
  display();
  expect(texts()).toEqual(["PREFLIGHT r1"]);
  await seconds(0.1);
  expect(texts()).toEqual(["LOST"]);
  expect(find(".ddl-message").textContent).toBe("Its kernel has ended, and the run with it.");
  expect(find(".ddl-next code").textContent).toBe("%%distributed --resume r1");
  expect(find(".ddl-stop").hidden).toBe(true);
});

test("below the kernel's live view nothing is drawn until the kernel has ended", async () => {
  feed.set([run("r1")]);
  answers = [view(full(1, { state: LOST }))];
  display("RUNNING");
  await seconds(2);
  expect([texts(), asked, find(".ddl-stored").dataset.lost]).toEqual([["PREFLIGHT r1"], 0, undefined]);
  feed.set([run("r1", { state: "LOST", live: false })]);
  await seconds(0.1);
  expect([texts(), find(".ddl-stored").dataset.lost]).toEqual([["LOST"], ""]);
});

test("a live view that knows the end stays, and so does what was saved of a run that the store does not have", async () => {
  feed.set([run("r1", { state: "LOST", live: false })]);
  display("LOST");
  await seconds(2);
  expect([texts(), asked]).toEqual([["PREFLIGHT r1"], 0]);
  block.dispose();
  document.body.replaceChildren();
  answers = [new ApiError("no run r1", 404, true)];
  display();
  await seconds(2);
  expect([texts(), asked]).toEqual([["PREFLIGHT r1"], 1]);
});

test("the end of a run is put into the notebook where the kernel does not do so, once it is read", async () => {
  blocks = [
    { data: null, behind: 0.5 },
    { data: { state: "FINISHED" }, behind: 0 },
  ];
  feed.set([run("r1")]);
  display("RUNNING");
  await seconds(7);
  expect(inNotebook).toEqual([]);
  feed.set([run("r1", { state: "FINISHED", live: false })]);
  await seconds(2);
  expect(inNotebook, "the kernel comes first").toEqual([]);
  await seconds(4);
  expect(inNotebook).toEqual(["FINISHED"]);
  feed.set([run("r1", { state: "FINISHED", live: false })]);
  await seconds(7);
  expect([inNotebook, blocks]).toEqual([["FINISHED"], []]);
});

test("the end that the kernel has put into the notebook stays", async () => {
  feed.set([run("r1", { state: "FINISHED", live: false })]);
  display("FINISHED");
  await seconds(2);
  inNotebook.push("FINISHED");
  blocks = [{ data: { state: "LOST" }, behind: 0 }];
  await seconds(7);
  expect(inNotebook).toEqual(["FINISHED"]);
});

test("a kernel that has stopped the run and ended leaves a view that still trains: the block shows the end", async () => {
  feed.set([run("r1")]);
  answers = [view(full(1, { state: { ...STATE, state: "STOPPED", ended: NOW } }))];
  display("RUNNING");
  feed.set([run("r1", { state: "STOPPED", live: false })]);
  await seconds(1);
  expect(find(".ddl-stored").dataset.lost, "its message may be on the way").toBeUndefined();
  await seconds(2);
  expect([texts(), find(".ddl-stored").dataset.lost]).toEqual([["STOPPED"], ""]);
});

test("a live view that says in time that the run has ended stays", async () => {
  feed.set([run("r1", { state: "FINISHED", live: false })]);
  display("RUNNING");
  await seconds(1);
  find(".ddl-run").dataset.state = "FINISHED";
  await seconds(2);
  expect([asked, find(".ddl-stored").dataset.lost]).toEqual([0, undefined]);
});
