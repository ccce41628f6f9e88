// @vitest-environment jsdom
/** The view in a document without a layout: what stands in it, and what can be clicked. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { RunView } from "../src/view/view";
import { delta, facts, full, NOW, RUN, STATE } from "./messages";

// The plotting library asks for it when it is imported; jsdom has none.
vi.hoisted(() => {
  const never = { matches: false, addEventListener() {}, removeEventListener() {} };
  globalThis.matchMedia = () => never as unknown as MediaQueryList;
});

let frames: FrameRequestCallback[] = [];
let view: RunView;
let stops = 0;

function frame(): void {
  for (const draw of frames.splice(0)) draw(0);
}

function show(message: Parameters<typeof view.apply>[0]): void {
  view.apply(message);
  frame();
}

const find = <E extends HTMLElement>(selector: string) => document.querySelector<E>(selector) as E;
const all = (selector: string) => [...document.querySelectorAll<HTMLElement>(selector)];
const visible = (selector: string) => find(selector).closest("[hidden]") === null;

beforeEach(() => {
  vi.useFakeTimers({ now: NOW * 1000, toFake: ["Date", "setInterval", "clearInterval"] });
  vi.stubGlobal("requestAnimationFrame", (draw: FrameRequestCallback) => frames.push(draw));
  vi.stubGlobal("cancelAnimationFrame", () => {});
  vi.stubGlobal("ResizeObserver", class { observe() {} disconnect() {} }); // biome-ignore format: a stub
  document.body.replaceChildren();
  frames = [];
  stops = 0;
  view = new RunView(document.body, { onStop: () => stops++ });
  frame();
});

afterEach(() => {
  view.dispose();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("before the kernel speaks it says so", () => {
  expect(find(".ddl-empty").textContent).toBe("waiting for the kernel …");
});

test("a running job", () => {
  show(full(1, { workers: [facts(0), facts(1)], numbers: [{ rank: 0, cpu: 310, compute: 26 }, { rank: 1, compute: 52 }] })); // biome-ignore format: one line
  expect(find(".ddl-chip").textContent).toBe("RUNNING");
  expect(find(".ddl-title").textContent).toBe("RUNNINGdigitsall-reduce · 2 workers · hdi-prod");
  expect(find("[role=progressbar]").getAttribute("aria-valuenow")).toBe("74");
  expect(find(".ddl-status").textContent).toBe("epoch 8 of 10 · step 412 of 938 · point 0.8 s old");
  const cells = all("tbody tr").map((row) => [...row.children].map((cell) => cell.textContent));
  expect(cells[0]).toEqual(["0", "wn3", "CPU, 8 cores", "310 %", "–", "26", "–", "–"]);
  expect(cells[1]?.at(-1)).toBe("2.0× slower");
});

test("a parameter-server run has its own columns", () => {
  const run = { ...RUN, strategy: "ps" };
  show(full(1, { run, workers: [facts(0)], numbers: [{ rank: 0, rate: 900, staleness: 2, staleness_max: 6, commits: 40 }] })); // biome-ignore format: one line
  expect(all("thead th").map((cell) => cell.textContent)).toEqual([
    "rank", "host", "device", "CPU", "memory", "samples/s", "staleness", "commits", "behind median",
  ]); // biome-ignore format: a row
  expect(all("tbody td").slice(5, 8).map((cell) => cell.textContent)).toEqual(["900", "2, at most 6", "40"]); // biome-ignore format: a row
});

test("a name that is cut off is told in full", () => {
  const host = "wn3-hdi.abcdefghijklmnop.internal.example";
  show(full(1, { workers: [facts(0, { host }), facts(1)], numbers: [{ rank: 0 }, { rank: 1 }] })); // biome-ignore format: one line
  expect(all("tbody tr").map((row) => row.children[1]?.getAttribute("title"))).toEqual([host, null]);
});

test("where some ranks have a GPU, the others say that they have none", () => {
  show(full(1, { workers: [facts(0), facts(1)], numbers: [{ rank: 0, gpu: 57 }, { rank: 1 }] })); // biome-ignore format: one line
  const gpus = all("tbody tr").map((row) => row.children[3]?.textContent);
  expect(gpus).toEqual(["57 %", "no GPU"]);
});

test("many lines are told by their range; up to six by their numbers", () => {
  const gpus = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, rank) => [`gpu:${rank}`, { points: [[1, 50], [2, 60 + rank]] as [number, number][] }])); // biome-ignore format: one line
  const heading = () => all(".ddl-values").at(-1)?.textContent;
  show(full(1, { lines: { rate: { points: [[1, 5], [2, 6]] }, ...gpus(4) } })); // biome-ignore format: one line
  expect(heading()).toBe("0123");
  show(full(2, { lines: { rate: { points: [[1, 5], [2, 6]] }, ...gpus(12) } })); // biome-ignore format: one line
  expect(heading()).toBe("60 – 71");
});

test("Stop is clicked once and told as stopping", () => {
  show(full(1));
  find<HTMLButtonElement>(".ddl-stop").click();
  show(delta(2));
  find<HTMLButtonElement>(".ddl-stop").click();
  expect(stops).toBe(1);
  expect(find(".ddl-stop").textContent).toBe("Stopping…");
  show(delta(3, { state: { ...STATE, state: "STOPPED", ended: NOW } }));
  expect(visible(".ddl-stop")).toBe(false);
});

test("a waiting cell names the notebook's stop button", () => {
  show(full(1, { run: { ...RUN, waiting: true } }));
  expect(visible(".ddl-stop")).toBe(false);
  expect(find(".ddl-hint").textContent).toContain("stop button of the notebook");
});

test("a file on its way from the cluster is told, also after the end", () => {
  const state = { ...STATE, state: "FINISHED" as const, message: "all workers finished", ended: NOW };
  show(full(1, { state: { ...state, fetching: "model-0.keras: 12 of 64 MB" } }));
  expect(visible(".ddl-message")).toBe(true);
  expect(find(".ddl-message").textContent).toBe("model-0.keras: 12 of 64 MB");
  show(delta(2, { state }));
  expect(visible(".ddl-message")).toBe(false);
});

test("a failure names rank, host and cause, with the traceback to unfold", () => {
  const failure = { rank: 1, host: "wn4", kind: "error" as const, message: "ValueError: no", traceback: "Traceback …" };
  show(
    full(1, { state: { ...STATE, state: "FAILED", message: "x", ended: NOW, failure }, workers: [facts(0), facts(1)] }),
  );
  expect(find("[role=alert] p").textContent).toBe("Rank 1 on wn4 raised an exception: ValueError: no");
  expect(find("details").textContent).toBe("TracebackTraceback …");
  expect(find<HTMLDetailsElement>("details").open).toBe(false);
  expect(all("tbody tr").map((row) => row.lastElementChild?.textContent)).toEqual(["–", "failed"]);
});

test("what a run says is text, never markup", () => {
  const evil = "<img src=x onerror=alert(1)>";
  show(
    full(1, {
      run: { ...RUN, name: evil, cluster: evil },
      state: { ...STATE, state: "LOST", message: evil, failure: null },
      workers: [facts(0, { host: evil, device: evil, message: evil })],
      logs: [[0, "out", evil]],
    }),
  );
  expect(all("img")).toEqual([]);
  expect(find(".ddl-log").textContent).toBe(`0${evil}`);
});

test("log tabs: one stop for Tab, arrows move, lines are those of the rank", () => {
  show(full(1, { logs: [[0, "out", "from 0"], [1, "err", "from 1"], [-1, "warning", "slow"]] })); // biome-ignore format: lines
  const tabs = all("[role=tab]");
  expect(tabs.map((tab) => tab.textContent)).toEqual(["All ranks", "0", "1"]);
  expect(tabs.map((tab) => tab.tabIndex)).toEqual([0, -1, -1]);
  expect(all(".ddl-log > div").map((row) => row.textContent)).toEqual(["0from 0", "1from 1", "·⚠ slow"]);
  tabs[0]?.focus();
  tabs[0]?.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
  expect(document.activeElement).toBe(tabs[2]);
  tabs[2]?.click();
  expect(tabs[2]?.getAttribute("aria-selected")).toBe("true");
  expect(find(".ddl-log").textContent).toBe("from 1");
  show(delta(2, { logs: [[1, "out", "more"], [0, "out", "elsewhere"]] })); // biome-ignore format: lines
  expect(all(".ddl-log > div").map((row) => row.textContent)).toEqual(["from 1", "more"]);
});

test("many ranks: a tile each, and rows for those that matter", () => {
  const ranks = Array.from({ length: 64 }, (_, rank) => rank);
  const numbers = ranks.map((rank) => ({ rank, compute: rank === 11 ? 50 : 25 }));
  show(full(1, { run: { ...RUN, workers: 64 }, workers: ranks.map((rank) => facts(rank)), numbers }));
  const tiles = all(".ddl-tiles button");
  expect(tiles.length).toBe(64);
  expect(tiles[11]?.textContent).toBe("11 · 2.0×");
  expect(tiles[11]?.getAttribute("aria-label")).toBe("rank 11, 2.0× slower");
  expect(tiles[11]?.dataset.heat).toBe("bad");
  expect(all("tbody tr").length).toBe(1);
  tiles[3]?.click();
  frame();
  expect(all("tbody tr").map((row) => row.firstElementChild?.textContent)).toEqual(["3", "11"]);
  expect(tiles[3]?.getAttribute("aria-pressed")).toBe("true");
  expect(find<HTMLSelectElement>(".ddl-logbar select").value).toBe("3");
  expect(all(".ddl-logbar [role=tab]").length).toBe(0);
});

test("every control has a name", () => {
  show(full(1, { workers: [facts(0)], logs: [[0, "out", "x"]], lines: { "metric:loss": { points: [[1, 1]] } } }));
  const controls = all("button, select, [role=img], [role=progressbar], [tabindex='0']");
  const shown = controls.filter((control) => control.closest("[hidden]") === null);
  expect(shown.length).toBeGreaterThan(6);
  for (const control of shown) {
    expect(control.getAttribute("aria-label") || control.textContent, control.outerHTML).toBeTruthy();
  }
});
