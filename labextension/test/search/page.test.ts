// @vitest-environment jsdom
/** The tab of a search in a document without a layout. */

import "../matchmedia";
import { Signal } from "@lumino/signaling";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { RunActions } from "../../src/actions";
import { ApiError } from "../../src/api";
import type { SearchRow, SearchUpdate, StopResult, TrialView, ViewSearchQuery } from "../../src/generated";
import { RunList } from "../../src/panel/runlist";
import { SearchPage } from "../../src/search/page";
import { english } from "../../src/translation";
import { find, findAll, isShown, texts } from "../dom";
import { page, search } from "../panel/rows";
import { full, NOW, trial, update } from "./trials";

class FakeFeed {
  readonly list = new RunList();
  readonly changed = new Signal<this, void>(this);

  set(searches: SearchRow[]): void {
    this.list.restart();
    this.list.addPage(page("v1", [], { searches }));
    this.changed.emit();
  }
}

type Answer = SearchUpdate | ApiError | null;

let feed: FakeFeed;
let answers: Answer[];
let asked: ViewSearchQuery[];
let done: string[];
let stopped: StopResult | null;
let view: { dispose(): void };

const answer = (version: string, message: SearchUpdate["message"], live = true): Answer => ({ version, message, live });
const settle = () => vi.advanceTimersByTimeAsync(1100);

const api = {
  searchView: (_: string, query: ViewSearchQuery): Promise<SearchUpdate | null> => {
    asked.push(query);
    const next = answers.shift();
    if (next === undefined) return new Promise(() => {});
    return next instanceof ApiError ? Promise.reject(next) : Promise.resolve(next);
  },
};

const actions = {
  openRun: (run: string) => done.push(`open ${run}`),
  compare: (runs: string[]) => done.push(`compare ${runs}`),
  stop: async (run: string) => {
    done.push(`stop ${run}`);
    return stopped;
  },
  stopSearch: async (of: string) => {
    done.push(`stop search ${of}`);
    return stopped;
  },
} as unknown as RunActions;

const TRIALS: TrialView[] = [trial(0), trial(1), trial(2, { state: "training", seconds: null, value: null })];

beforeEach(() => {
  vi.useFakeTimers({ now: NOW * 1000 });
  vi.stubGlobal("ResizeObserver", class { observe() {} disconnect() {} }); // biome-ignore format: a stub
  vi.spyOn(HTMLElement.prototype, "offsetParent", "get").mockReturnValue(document.body);
  document.body.replaceChildren();
  feed = new FakeFeed();
  feed.set([search("s1")]);
  [answers, asked, done, stopped] = [[], [], [], { outcome: "asked", message: "", how: "" }];
});

afterEach(() => {
  view.dispose();
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

async function open(...first: Answer[]): Promise<void> {
  answers = first;
  view = new SearchPage(document.body, { api, feed, actions, trans: english, search: "s1" });
  await settle();
}

test("it is drawn and followed until its end", async () => {
  await open(answer("w-1", full(TRIALS)), answer("w-9", update(9, [trial(2)])));
  await settle();
  expect(asked.slice(0, 2)).toEqual([{}, { version: "w-1", wait: 20 }]);
  expect(texts("tbody .ddl-pick-trial").length).toBe(3);
  expect(texts(".ddl-foot")[0]).toContain("3 finished");
  expect(find(".ddl-searchpage").getAttribute("aria-label")).toBe("tuned");
});

test("after its end it is not asked for, until a kernel continues it", async () => {
  await open(answer("w-1", full(TRIALS, { state: "LOST" }), false));
  await settle();
  feed.set([search("s1", { live: false, state: "LOST" })]);
  await settle();
  expect(asked.length).toBe(1);
  feed.set([search("s1")]);
  await settle();
  expect(asked.length).toBe(2);
});

test("its trials are opened, stopped and compared", async () => {
  await open(answer("w-1", full(TRIALS)));
  find("button[aria-label='open trial 1']").click();
  find("button[aria-label='stop trial 2']").click();
  const compare = find<HTMLButtonElement>(".ddl-compare-trials");
  expect(compare.disabled).toBe(true);
  for (const number of [0, 1]) find(`input[aria-label='compare trial ${number}']`).click();
  expect(compare.textContent).toBe("Compare 2 trials");
  compare.click();
  find(".ddl-stop").click();
  expect(done).toEqual(["open run1", "stop run2", "compare run0,run1", "stop search s1"]);
  await settle();
  expect(find(".ddl-stop").textContent).toBe("Stopping…");
});

test("a stop that was cancelled can be asked for again", async () => {
  stopped = null;
  await open(answer("w-1", full(TRIALS)));
  find(".ddl-stop").click();
  find("button[aria-label='stop trial 2']").click();
  await settle();
  expect(find(".ddl-stop").textContent).toBe("Stop");
  expect(findAll("button:disabled").map((button) => button.className)).toEqual(["ddl-compare-trials"]);
});

test("what is wrong stands above it", async () => {
  await open(new ApiError("its trials are not stored yet", 409, true), answer("w-1", full(TRIALS)));
  expect(texts(".ddl-banner")).toEqual(["its trials are not stored yet"]);
  expect(texts(".ddl-empty")).toEqual(["Loading the search …"]);
  await vi.advanceTimersByTimeAsync(6000);
  expect(isShown(find(".ddl-banner"))).toBe(false);
  answers = [new ApiError("there is no such search", 404, true)];
});

test("a search that was deleted stays as it was", async () => {
  await open(answer("w-1", full(TRIALS, { state: "FINISHED" }), false));
  feed.set([]);
  expect(texts(".ddl-banner")[0]).toContain("This search was deleted");
  expect(texts("tbody .ddl-pick-trial").length).toBe(3);
});
