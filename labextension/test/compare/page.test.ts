// @vitest-environment jsdom
/** The page of a comparison in a document without a layout. */

import "../matchmedia";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Api } from "../../src/api";
import { ComparePage } from "../../src/compare/page";
import { english } from "../../src/translation";
import { find, findAll, isShown, texts } from "../dom";
import { FakeFeed } from "../fakes";
import { begin, end, frame, seconds } from "../layoutless";
import { full, type Lines, STATE, view } from "../messages";
import { details, finished, NOW, page as pageOf, run } from "../panel/rows";

const POLL_SECONDS = 2;

/** The runs of the server; a number is the status of an error, null: there is no answer. */
let runs: Record<string, { state: "RUNNING" | "FINISHED" } | number | null>;
/** The requests that the server got. */
let requests: string[];
let page: ComparePage;
let feed: FakeFeed;
let opened: string[];
let visible: boolean;
let n: number;
let metrics: string[];

/** The banner and the notes that are shown. */
const notes = () =>
  findAll(".ddl-compare > p")
    .filter(isShown)
    .map(({ textContent }) => textContent);

async function pass(time: number): Promise<void> {
  await seconds(time);
  frame();
}

async function answer(path: string): Promise<Response> {
  const [, id = "", part] = /runs\/(\w+)(\/view)?/.exec(path) ?? [];
  requests.push(part ? `${id}/view` : id);
  const known = runs[id];
  if (known === null) throw new TypeError("Failed to fetch");
  if (known === undefined) return Response.json({ message: "there is no such run" }, { status: 404 });
  if (typeof known === "number") return Response.json({ message: "damaged" }, { status: known });
  const live = known.state === "RUNNING";
  if (!part) {
    const spec = { cell: `fit(${id})`, workers: 2 };
    return Response.json(details(id, { name: id, live, state: known.state, spec }));
  }
  if (path.includes("n=") && live) return new Response(null, { status: 204 });
  const lines: Lines = Object.fromEntries(metrics.map((name) => [`metric:${name}`, { points: [[1, 2]] }]));
  n += 1;
  return Response.json(view(full(n, { lines, state: { ...STATE, state: known.state } })));
}

function create(...ids: string[]): void {
  page = new ComparePage(find("main"), {
    api: new Api(answer),
    feed,
    settings: { pollSeconds: POLL_SECONDS },
    trans: english,
    actions: { openRun: (run) => opened.push(run) },
    runs: ids,
  });
}

/** Opens a page, and lets it load its runs. */
async function open(...ids: string[]): Promise<void> {
  create(...ids);
  await pass(0.01);
}

beforeEach(() => {
  begin(NOW);
  document.body.replaceChildren(document.createElement("main"));
  visible = true;
  // jsdom has no layout: whether the page is visible is defined here.
  Object.defineProperty(find("main"), "offsetParent", { get: () => (visible ? document.body : null) });
  runs = { a: { state: "FINISHED" }, b: { state: "RUNNING" } };
  metrics = ["loss"];
  [requests, opened, feed, n] = [[], [], new FakeFeed(), 0];
});

afterEach(() => {
  page.dispose();
  end();
});

test("it shows that it is loading, then runs, charts, differences and cells", async () => {
  create("a", "b");
  frame();
  expect(notes()).toEqual(["Loading the runs …"]);
  await pass(0.01);
  expect(notes()).toEqual([]);
  expect(texts(".ddl-legend b")).toEqual(["A", "B"]);
  expect(texts(".ddl-legend-name")).toEqual(["a", "b"]);
  expect(texts(".ddl-chip")).toEqual(["FINISHED", "RUNNING"]);
  expect(texts(".ddl-chart h3")).toEqual(["loss"]);
  expect(find(".ddl-canvas").getAttribute("aria-label")).toBe("loss over steps; last values: A 2, B 2");
  expect(texts(".ddl-diff [data-change]")).toEqual(["−fit(a)", "+fit(b)"]);
});

test("a run that has ended is requested once, a live one at the poll interval", async () => {
  await open("a", "b");
  expect(requests.sort()).toEqual(["a", "a/view", "b", "b/view"]);
  requests = [];
  await pass(2 * POLL_SECONDS);
  expect(requests).toEqual(["b/view", "b/view"]);
});

test("a hidden page does not poll", async () => {
  visible = false;
  create("a", "b");
  await pass(5 * POLL_SECONDS);
  expect(requests).toEqual([]);
  visible = true;
  await pass(1);
  expect(texts(".ddl-chip")).toEqual(["FINISHED", "RUNNING"]);
});

test("a LOST run that is live again is followed again", async () => {
  runs.b = { state: "FINISHED" };
  await open("a", "b");
  feed.list.addPage(pageOf("v1", [finished("a"), run("b")]));
  requests = [];
  await pass(POLL_SECONDS);
  expect(requests).toEqual(["b/view"]);
});

test("metrics without a chart are counted", async () => {
  metrics = Array.from({ length: 26 }, (_, i) => `m${i}`);
  await open("a", "b");
  expect(findAll(".ddl-chart")).toHaveLength(24);
  expect(notes()).toEqual(["2 more metrics have no chart."]);
});

test("a closed page does not poll", async () => {
  await open("a", "b");
  page.dispose();
  requests = [];
  await pass(5 * POLL_SECONDS);
  expect([requests, findAll(".ddl-compare")]).toEqual([[], []]);
});

test("a run that is deleted meanwhile stays, with a message", async () => {
  await open("a", "b");
  delete runs.b;
  await pass(POLL_SECONDS);
  expect(texts(".ddl-legend-problem")).toEqual(["", "It was deleted. Its last known state is shown."]);
  expect(find(".ddl-canvas").getAttribute("aria-label")).toContain("B 2");
});

test("a run that has ended is requested again when it is not listed any more", async () => {
  feed.list.addPage(pageOf("v1", [finished("a"), finished("b")]));
  await open("a", "b");
  delete runs.a;
  feed.list.applyChanges(pageOf("v2", [], { removed: ["a"], total: 1 }));
  await pass(POLL_SECONDS);
  expect(texts(".ddl-legend-problem")[0]).toBe("It was deleted. Its last known state is shown.");
});

test("missing and unreadable runs have a message", async () => {
  runs = { b: 409 };
  await open("a", "b");
  expect(texts(".ddl-legend-problem")).toEqual(["There is no such run in the store.", "It cannot be read: damaged"]);
  expect(notes()).toEqual(["None of these runs is available."]);
  requests = [];
  await pass(5 * POLL_SECONDS);
  expect(requests).toEqual([]);
});

test("while the server does not respond it backs off, below a banner", async () => {
  await open("a", "b");
  runs.b = null;
  await pass(POLL_SECONDS);
  expect(notes()).toEqual(["The last known state is shown: Jupyter Server does not respond"]);
  requests = [];
  await pass(8 * POLL_SECONDS);
  expect(requests.length).toBeLessThan(5);
  runs.b = { state: "RUNNING" };
  await pass(20 * POLL_SECONDS);
  expect(notes()).toEqual([]);
});

test("after the end of a run its details are requested again", async () => {
  await open("a", "b");
  runs.b = { state: "FINISHED" };
  // The server sends a full message.
  await pass(POLL_SECONDS);
  await pass(POLL_SECONDS);
  expect(texts(".ddl-chip")).toEqual(["FINISHED", "FINISHED"]);
  requests = [];
  await pass(3 * POLL_SECONDS);
  expect(requests).toEqual([]);
});

test("the cells of the first two runs are compared, until others are selected", async () => {
  runs = { c: { state: "FINISHED" }, ...runs };
  runs.a = null;
  await open("a", "b", "c");
  expect(texts(".ddl-diff [data-change]")).toEqual(["−fit(b)", "+fit(c)"]);
  runs.a = { state: "FINISHED" };
  await pass(4 * POLL_SECONDS);
  expect(texts(".ddl-diff [data-change]")).toEqual(["−fit(a)", "+fit(b)"]);
  const after = find<HTMLSelectElement>("[aria-label='Run that it is compared with']");
  after.value = "c";
  after.dispatchEvent(new Event("change"));
  expect(texts(".ddl-diff [data-change]")).toEqual(["−fit(a)", "+fit(c)"]);
});

test("runs can be hidden and opened", async () => {
  await open("a", "b");
  findAll(".ddl-legend input")[0]?.click();
  await pass(0);
  expect(find(".ddl-canvas").getAttribute("aria-label")).toBe("loss over steps; last values: B 2");
  findAll(".ddl-legend input")[1]?.click();
  await pass(0);
  expect(notes()).toEqual(["All runs are hidden."]);
  findAll(".ddl-legend button")[1]?.click();
  expect(opened).toEqual(["b"]);
});

test("a note names the runs that are not shown on an axis", async () => {
  await open("a", "b");
  find<HTMLInputElement>("input[value=epoch]").click();
  await pass(0);
  expect(notes()).toContain("Not shown, because the epochs are unknown: A, B.");
});

test("only eight runs are shown, with a note", async () => {
  const ids = Array.from({ length: 11 }, (_, i) => `run${i}`);
  runs = Object.fromEntries(ids.map((id) => [id, { state: "FINISHED" as const }]));
  await open(...ids, "run0");
  expect(texts(".ddl-legend b")).toHaveLength(8);
  expect(notes()).toEqual(["Only the first 8 of 11 runs are shown."]);
  expect(requests).not.toContain("run8");
});
