// @vitest-environment jsdom
/** The page of a run in a document without a layout: what it asks for, and what it says. */

import { Signal } from "@lumino/signaling";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { RunActions, Settings } from "../../src/actions";
import { type Api, ApiError } from "../../src/api";
import type { RunFeed } from "../../src/panel/feed";
import { RunList } from "../../src/panel/runlist";
import { createRunPage } from "../../src/run/page";
import { english } from "../../src/translation";
import { delta, full, NOW, STATE } from "../messages";
import { answer, finished, run } from "../panel/rows";

// The plotting library asks for it when it is imported; jsdom has none.
vi.hoisted(() => {
  const never = { matches: false, addEventListener() {}, removeEventListener() {} };
  globalThis.matchMedia = () => never as unknown as MediaQueryList;
});

let views: (object | Error)[];
let asked: string[];
let acted: string[];
let list: RunList;
let changed: Signal<object, void>;
let page: { dispose(): void };

const find = <E extends HTMLElement>(selector: string) => document.querySelector<E>(selector) as E;
const banner = () => (find(".ddl-banner").hidden ? "" : find(".ddl-banner").textContent);
const button = (words: string) =>
  [...document.querySelectorAll("button")].find(({ textContent }) => textContent === words) as HTMLButtonElement;
const seconds = (time: number) => vi.advanceTimersByTimeAsync(time * 1000);

function view(message: object, more = false): object {
  return { page: "p", message, buffers: ["", ""], behind: 0, damaged: 0, more };
}

async function open(...answers: typeof views): Promise<void> {
  views = answers;
  const api = {
    view: async () => {
      asked.push("view");
      const next = views.shift() ?? null;
      if (next instanceof Error) throw next;
      return next ?? new Promise(() => {});
    },
    run: async (id: string) => {
      asked.push(`run ${id}`);
      const more = {
        spec: { cell: "model.fit(x)" },
        cause: null,
        environment: {},
        versions: {},
        place: {},
        owner: {},
        files: [],
      };
      return { ...finished(id), ...more, size: 1, stop_requested: false, stop: null };
    },
    logs: async () => ({ lines: [], offset: 0, begin: 0, more: false }),
  };
  const actions = new Proxy({}, { get: (_, name) => (what: unknown) => void acted.push(`${String(name)} ${what}`) });
  page = createRunPage(document.body, {
    api: api as unknown as Api,
    feed: { list, changed } as unknown as RunFeed,
    settings: { pollSeconds: 2 } as Settings,
    actions: actions as RunActions,
    trans: english,
    run: "r1",
  });
  await seconds(0.1);
}

beforeEach(() => {
  vi.useFakeTimers({ now: NOW * 1000 });
  vi.stubGlobal("ResizeObserver", class { observe() {} disconnect() {} }); // biome-ignore format: a stub
  vi.spyOn(HTMLElement.prototype, "offsetParent", "get").mockReturnValue(document.body);
  document.body.replaceChildren();
  [asked, acted] = [[], []];
  list = new RunList();
  changed = new Signal<object, void>({});
});

afterEach(() => {
  page.dispose();
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test("its head says what the list calls it and what the view says of its state", async () => {
  list.page(answer("v1", [run("r1", { title: "the best" })]));
  await open(view(full(1).message));
  expect([find("h1").textContent, find(".ddl-runpage-state").textContent]).toEqual(["the best", "RUNNING"]);
  expect([button("Stop…").hidden, button("Delete…").hidden]).toEqual([false, true]);
  for (const words of ["Stop…", "Open Notebook", "Copy as Cell", "HTML"]) button(words).click();
  expect(acted.map((line) => line.split(" ")[0])).toEqual(["stop", "openNotebook", "copyAsCell", "exportRun"]);
});

test("a run that has ended is asked for no more, and can be deleted", async () => {
  const state = { ...STATE, state: "FINISHED" as const, ended: NOW };
  await open(view(full(1).message), view(delta(2, { state }).message));
  expect([button("Stop…").hidden, button("Delete…").hidden]).toEqual([true, false]);
  await seconds(60);
  expect(asked).toEqual(["view", "view"]);
});

test("a run that has ended is not said to go on while it is read in parts", async () => {
  list.page(answer("v1", [finished("r1")]));
  await open(view(full(1).message, true));
  expect([find(".ddl-runpage-state").textContent, button("Stop…").hidden]).toEqual(["FINISHED", true]);
});

test("details are asked for when somebody looks, and once for all tabs", async () => {
  const state = { ...STATE, state: "FINISHED" as const, ended: NOW };
  await open(view(full(1, { state }).message));
  expect(asked).toEqual(["view"]);
  for (const name of ["Cell", "Details", "Changes", "Cell"]) {
    button(name).click();
    await seconds(0.1);
  }
  expect(asked).toEqual(["view", "run r1"]);
  expect(find(".ddl-runpage-code").textContent).toContain("%%distributed");
});

test("details are asked for anew when the run has ended", async () => {
  let end: (view: object) => void = () => {};
  await open(view(full(1).message), new Promise<object>((resolve) => { end = resolve; })); // biome-ignore format: short
  button("Details").click();
  await seconds(0.1);
  end(view(delta(2, { state: { ...STATE, state: "FINISHED", ended: NOW } }).message));
  await seconds(0.1);
  expect(asked.filter((what) => what === "run r1")).toHaveLength(2);
});

test("a server that does not answer is told, and asked again; a run that is not there is not", async () => {
  await open(new ApiError("Jupyter Server does not answer", 0, false), new ApiError("there is no such run", 404, true));
  expect(banner()).toBe("This is how it was: Jupyter Server does not answer");
  await seconds(5);
  expect(banner()).toBe("there is no such run");
  await seconds(60);
  expect(asked).toHaveLength(2);
});

test("a run that is deleted stays to be seen, without what can be done with it", async () => {
  list.page(answer("v1", [finished("r1")]));
  await open(view(full(1, { state: { ...STATE, state: "FINISHED", ended: NOW } }).message));
  list.rows.delete("r1");
  changed.emit();
  expect(banner()).toContain("deleted");
  expect(find(".ddl-runpage-actions").hidden).toBe(true);
});
