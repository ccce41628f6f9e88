// @vitest-environment jsdom
/** The page of a run in a document without a layout. */

import "../matchmedia";
import { Signal } from "@lumino/signaling";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { RunActions } from "../../src/actions";
import { ApiError } from "../../src/api";
import { DEFAULT_SETTINGS, type RunState, type View } from "../../src/generated";
import { RunList } from "../../src/panel/runlist";
import { RunPage } from "../../src/run/page";
import { english } from "../../src/translation";
import { find, findAll, isShown } from "../dom";
import { delta, full, NOW, STATE, view } from "../messages";
import { details, finished, page as pageOf, run } from "../panel/rows";

const FINISHED: RunState = { ...STATE, state: "FINISHED", ended: NOW };

type Answer = View | Error | Promise<View>;

/** The requests that the server got, and the actions that were called. */
let requests: string[];
let called: string[];
let list: RunList;
let changed: Signal<object, void>;
let page: { dispose(): void };

const banner = () => (isShown(find(".ddl-banner")) ? find(".ddl-banner").textContent : "");
const seconds = (time: number) => vi.advanceTimersByTimeAsync(time * 1000);

function button(text: string): HTMLElement {
  const found = findAll("button").find(({ textContent }) => textContent === text);
  if (!found) throw new Error(`no button ${text}`);
  return found;
}

function fakeActions(): RunActions {
  const call = (name: string) => () => void called.push(name);
  return {
    openRun: call("openRun"),
    compare: call("compare"),
    openNotebook: async () => call("openNotebook")(),
    copyAsCell: async () => call("copyAsCell")(),
    stop: async () => {
      call("stop")();
      return null;
    },
    stopSearch: async () => {
      call("stopSearch")();
      return null;
    },
    delete: async () => {
      call("delete")();
      return false;
    },
    exportRun: call("exportRun"),
  };
}

/** Opens the page of run "r1"; the server gives these answers to the route `view`, and then none. */
async function open(...answers: Answer[]): Promise<void> {
  page = new RunPage(document.body, {
    api: {
      view: async () => {
        requests.push("view");
        const answer = answers.shift() ?? new Promise<View>(() => {});
        if (answer instanceof Error) throw answer;
        return answer;
      },
      run: async (id) => {
        requests.push(`run ${id}`);
        return details(id, { spec: { cell: "model.fit(x)" } });
      },
      logs: async () => ({ lines: [], offset: 0, begin: 0, more: false }),
      replay: async () => ({ frames: [], behind: 0 }),
    },
    feed: { list, changed },
    settings: DEFAULT_SETTINGS,
    actions: fakeActions(),
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
  [requests, called] = [[], []];
  list = new RunList();
  changed = new Signal<object, void>({});
});

afterEach(() => {
  page.dispose();
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test("the header has the title of the list, the state of the view, and the actions", async () => {
  list.addPage(pageOf("v1", [run("r1", { title: "the best" })]));
  await open(view(full(1)));
  expect([find("h1").textContent, find(".ddl-runpage-state").textContent]).toEqual(["the best", "RUNNING"]);
  expect([isShown(button("Stop…")), isShown(button("Delete…"))]).toEqual([true, false]);
  for (const text of ["Stop…", "Open Notebook", "Copy as Cell", "HTML"]) button(text).click();
  expect(called).toEqual(["stop", "openNotebook", "copyAsCell", "exportRun"]);
});

test("a run that has ended is not polled any more, and can be deleted", async () => {
  await open(view(full(1)), view(delta(2, { state: FINISHED })));
  expect([isShown(button("Stop…")), isShown(button("Delete…"))]).toEqual([false, true]);
  await seconds(60);
  expect(requests).toEqual(["view", "view"]);
});

test("a run that has ended is shown as ended while its events are read in parts", async () => {
  list.addPage(pageOf("v1", [finished("r1")]));
  await open(view(full(1), true));
  expect([find(".ddl-runpage-state").textContent, isShown(button("Stop…"))]).toEqual(["FINISHED", false]);
});

test("details are requested when a tab needs them, and once for all tabs", async () => {
  await open(view(full(1, { state: FINISHED })));
  expect(requests).toEqual(["view"]);
  for (const name of ["Cell", "Details", "Changes", "Cell"]) {
    button(name).click();
    await seconds(0.1);
  }
  expect(requests).toEqual(["view", "run r1"]);
  expect(find(".ddl-runpage-code").textContent).toContain("%%distributed");
});

test("details are requested again when the run has ended", async () => {
  let end: (answer: View) => void = () => {};
  await open(view(full(1)), new Promise<View>((resolve) => { end = resolve; })); // biome-ignore format: short
  button("Details").click();
  await seconds(0.1);
  end(view(delta(2, { state: FINISHED })));
  await seconds(0.1);
  expect(requests.filter((request) => request === "run r1")).toHaveLength(2);
});

test("a request without an answer is repeated, one for a missing run is not", async () => {
  const silent = new ApiError("Jupyter Server does not respond", 0, false);
  await open(silent, new ApiError("there is no such run", 404, true));
  expect(banner()).toBe("The last known state is shown: Jupyter Server does not respond");
  await seconds(5);
  expect(banner()).toBe("there is no such run");
  await seconds(60);
  expect(requests).toHaveLength(2);
});

test("a deleted run stays visible, without actions", async () => {
  list.addPage(pageOf("v1", [finished("r1")]));
  await open(view(full(1, { state: FINISHED })));
  list.rows.delete("r1");
  changed.emit();
  expect(banner()).toContain("deleted");
  expect(isShown(find(".ddl-runpage-actions"))).toBe(false);
});
