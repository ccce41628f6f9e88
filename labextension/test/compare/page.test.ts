// @vitest-environment jsdom
/** The page of a comparison in a document without a layout: what it asks for, and what stands in it. */

import { Signal } from "@lumino/signaling";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Api } from "../../src/api";
import { createComparePage } from "../../src/compare/page";
import type { RunFeed } from "../../src/panel/feed";
import { RunList } from "../../src/panel/runlist";
import { english } from "../../src/translation";
import { full, STATE } from "../messages";
import { answer, finished, NOW, run } from "../panel/rows";

// The plotting library asks for it when it is imported; jsdom has none.
vi.hoisted(() => {
  const never = { matches: false, addEventListener() {}, removeEventListener() {} };
  globalThis.matchMedia = () => never as unknown as MediaQueryList;
});

const POLL_MS = 2000;

/** What the server has; a number is the status of a refusal, null an answer that never comes. */
let runs: Record<string, { state: "RUNNING" | "FINISHED" } | number | null>;
let asked: string[];
let frames: FrameRequestCallback[];
let page: { dispose(): void } | null;
let list: RunList;
let opened: string[];
let seen: boolean;
let n: number;
let metrics: string[];

const find = <E extends HTMLElement>(selector: string) => document.querySelector<E>(selector) as E;
const all = (selector: string) => [...document.querySelectorAll<HTMLElement>(selector)];
const words = (selector: string) => all(selector).map((element) => element.textContent);
const visible = (element: HTMLElement) => element.closest("[hidden]") === null;
const lines = () => all(".ddl-compare > p").filter(visible).map((element) => element.textContent); // biome-ignore format: short

async function pass(milliseconds: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(milliseconds);
  for (const draw of frames.splice(0)) draw(0);
}

async function served(path: string): Promise<Response> {
  const [, id = "", part] = /runs\/(\w+)(\/view)?/.exec(path) ?? [];
  asked.push(part ? `${id}/view` : id);
  const known = runs[id];
  if (known === null) throw new TypeError("Failed to fetch");
  if (known === undefined) return Response.json({ message: "there is no such run" }, { status: 404 });
  if (typeof known === "number") return Response.json({ message: "damaged" }, { status: known });
  const live = known.state === "RUNNING";
  if (!part) {
    const spec = { cell: `fit(${id})`, workers: 2 };
    return Response.json({
      ...finished(id, { name: id, live, state: known.state }),
      spec,
      environment: {},
      versions: {},
    });
  }
  if (path.includes("n=") && live) return new Response(null, { status: 204 });
  const points = Object.fromEntries(
    metrics.map((name) => [`metric:${name}`, { points: [[1, 2]] as [number, number][] }]),
  );
  n += 1;
  const { message, points: floats } = full(n, { lines: points, state: { ...STATE, state: known.state } });
  const packed = btoa(String.fromCharCode(...new Uint8Array(floats.buffer)));
  return Response.json({ page: "p", message, buffers: [packed, ""], behind: 0, damaged: 0, more: false });
}

function open(...ids: string[]): void {
  page = createComparePage(find("main"), {
    api: new Api(served),
    feed: { list, changed: new Signal<object, void>({}) } as unknown as RunFeed,
    settings: { pollSeconds: POLL_MS / 1000, maxPoints: 0, series: "default", changed: () => () => {} },
    trans: english,
    actions: { openRun: (run) => opened.push(run) },
    runs: ids,
  });
}

beforeEach(() => {
  vi.useFakeTimers({ now: NOW * 1000, toFake: ["Date", "setTimeout", "clearTimeout"] });
  vi.stubGlobal("requestAnimationFrame", (draw: FrameRequestCallback) => frames.push(draw));
  vi.stubGlobal("cancelAnimationFrame", () => {});
  vi.stubGlobal("ResizeObserver", class { observe() {} disconnect() {} }); // biome-ignore format: a stub
  document.body.replaceChildren(document.createElement("main"));
  seen = true;
  // jsdom lays nothing out: that a page can be seen is said here.
  Object.defineProperty(find("main"), "offsetParent", { get: () => (seen ? document.body : null) });
  runs = { a: { state: "FINISHED" }, b: { state: "RUNNING" } };
  metrics = ["loss"];
  [asked, frames, opened, list, n, page] = [[], [], [], new RunList(), 0, null];
});

afterEach(() => {
  page?.dispose();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("it says that it reads, then shows runs, charts, differences and cells", async () => {
  open("a", "b");
  for (const draw of frames.splice(0)) draw(0);
  expect(lines()).toEqual(["Reading the runs …"]);
  await pass(10);
  expect(lines()).toEqual([]);
  expect(words(".ddl-legend b")).toEqual(["A", "B"]);
  expect(words(".ddl-legend-name")).toEqual(["a", "b"]);
  expect(words(".ddl-chip")).toEqual(["FINISHED", "RUNNING"]);
  expect(words(".ddl-chart h3")).toEqual(["loss"]);
  expect(find(".ddl-canvas").getAttribute("aria-label")).toBe("loss over steps; last values: A 2, B 2");
  expect(words(".ddl-diff [data-change]")).toEqual(["−fit(a)", "+fit(b)"]);
});

test("what has ended is asked for once, what goes on as often as the reader has set", async () => {
  open("a", "b");
  await pass(10);
  expect(asked.sort()).toEqual(["a", "a/view", "b", "b/view"]);
  asked = [];
  await pass(2 * POLL_MS);
  expect(asked).toEqual(["b/view", "b/view"]);
});

test("a page that is not seen asks nothing", async () => {
  seen = false;
  open("a", "b");
  await pass(5 * POLL_MS);
  expect(asked).toEqual([]);
  seen = true;
  await pass(1000);
  expect(words(".ddl-chip")).toEqual(["FINISHED", "RUNNING"]);
});

test("a run that was lost and goes on is followed again", async () => {
  runs.b = { state: "FINISHED" };
  open("a", "b");
  await pass(10);
  list.page(answer("v1", [finished("a"), run("b")]));
  asked = [];
  await pass(POLL_MS);
  expect(asked).toEqual(["b/view"]);
});

test("metrics without a chart are counted", async () => {
  metrics = Array.from({ length: 26 }, (_, i) => `m${i}`);
  open("a", "b");
  await pass(10);
  expect(all(".ddl-chart")).toHaveLength(24);
  expect(lines()).toEqual(["2 more metrics have no chart."]);
});

test("after it is closed it asks nothing", async () => {
  open("a", "b");
  await pass(10);
  page?.dispose();
  asked = [];
  await pass(5 * POLL_MS);
  expect([asked, all(".ddl-compare")]).toEqual([[], []]);
});

test("a run that is deleted meanwhile stays as it was, with a line", async () => {
  open("a", "b");
  await pass(10);
  delete runs.b;
  await pass(POLL_MS);
  expect(words(".ddl-legend-problem")).toEqual(["", "It was deleted: this is how it was."]);
  expect(find(".ddl-canvas").getAttribute("aria-label")).toContain("B 2");
});

test("a run that has ended is asked for again when the panel does not list it any more", async () => {
  list.page(answer("v1", [finished("a"), finished("b")]));
  open("a", "b");
  await pass(10);
  delete runs.a;
  list.changes(answer("v2", [], { removed: ["a"], total: 1 }));
  await pass(POLL_MS);
  expect(words(".ddl-legend-problem")[0]).toBe("It was deleted: this is how it was.");
});

test("runs that are not there, or cannot be read, say so", async () => {
  runs = { b: 409 };
  open("a", "b");
  await pass(10);
  expect(words(".ddl-legend-problem")).toEqual([
    "There is no such run in the store any more.",
    "It cannot be read: damaged",
  ]);
  expect(lines()).toEqual(["None of these runs is there any more."]);
  asked = [];
  await pass(5 * POLL_MS);
  expect(asked).toEqual([]);
});

test("a server that does not answer is told, asked less often, and forgotten when it answers", async () => {
  open("a", "b");
  await pass(10);
  runs.b = null;
  await pass(POLL_MS);
  expect(lines()).toEqual(["This is how it was: Jupyter Server does not answer"]);
  asked = [];
  await pass(8 * POLL_MS);
  expect(asked.length).toBeLessThan(5);
  runs.b = { state: "RUNNING" };
  await pass(20 * POLL_MS);
  expect(lines()).toEqual([]);
});

test("the end of a run is taken from the server, with what is known only then", async () => {
  open("a", "b");
  await pass(10);
  runs.b = { state: "FINISHED" };
  // The server tells everything anew.
  await pass(POLL_MS);
  await pass(POLL_MS);
  expect(words(".ddl-chip")).toEqual(["FINISHED", "FINISHED"]);
  asked = [];
  await pass(3 * POLL_MS);
  expect(asked).toEqual([]);
});

test("the cells of the first two runs are compared, until the reader chooses others", async () => {
  runs = { c: { state: "FINISHED" }, ...runs };
  runs.a = null;
  open("a", "b", "c");
  await pass(10);
  expect(words(".ddl-diff [data-change]")).toEqual(["−fit(b)", "+fit(c)"]);
  runs.a = { state: "FINISHED" };
  await pass(4 * POLL_MS);
  expect(words(".ddl-diff [data-change]")).toEqual(["−fit(a)", "+fit(b)"]);
  const after = find<HTMLSelectElement>("[aria-label='Run that it is compared with']");
  after.value = "c";
  after.dispatchEvent(new Event("change"));
  expect(words(".ddl-diff [data-change]")).toEqual(["−fit(a)", "+fit(c)"]);
});

test("a run is switched off and on, and opened", async () => {
  open("a", "b");
  await pass(10);
  const [first] = all(".ddl-legend input") as HTMLInputElement[];
  first?.click();
  await pass(0);
  expect(find(".ddl-canvas").getAttribute("aria-label")).toBe("loss over steps; last values: B 2");
  (all(".ddl-legend input")[1] as HTMLInputElement).click();
  await pass(0);
  expect(lines()).toEqual(["All runs are switched off."]);
  all(".ddl-legend button")[1]?.click();
  expect(opened).toEqual(["b"]);
});

test("an axis on which a run cannot be placed says whose lines are missing", async () => {
  open("a", "b");
  await pass(10);
  find<HTMLInputElement>("input[value=epoch]").click();
  await pass(0);
  expect(lines()).toContain("Not drawn, as their epochs are not known: A, B.");
});

test("more than eight runs are not drawn, and it is said", async () => {
  const ids = Array.from({ length: 11 }, (_, i) => `run${i}`);
  runs = Object.fromEntries(ids.map((id) => [id, { state: "FINISHED" as const }]));
  open(...ids, "run0");
  await pass(10);
  expect(words(".ddl-legend b")).toHaveLength(8);
  expect(lines()).toEqual(["The first 8 of 11 runs are shown: more lines cannot be told apart."]);
  expect(asked).not.toContain("run8");
});
