// @vitest-environment jsdom
/** The tab of a search in a document without a layout. */

import "../matchmedia";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ApiError } from "../../src/api";
import type { SearchUpdate, StopResult, TrialView, ViewSearchQuery } from "../../src/generated";
import { SearchPage } from "../../src/search/page";
import { english } from "../../src/translation";
import { find, findAll, isShown, texts } from "../dom";
import { FakeFeed, fakeActions } from "../fakes";
import { begin, end, seconds } from "../layoutless";
import { search } from "../panel/rows";
import { full, NOW, trial, update } from "./trials";

type Answer = SearchUpdate | ApiError | null;

let feed: FakeFeed;
let answers: Answer[];
let asked: ViewSearchQuery[];
let done: string[];
let stopped: StopResult | null;
let view: SearchPage;

const answer = (version: string, message: SearchUpdate["message"], live = true): Answer => ({ version, message, live });
const settle = () => seconds(1.1);

const api = {
  searchView: (_: string, query: ViewSearchQuery): Promise<SearchUpdate | null> => {
    asked.push(query);
    const next = answers.shift();
    if (next === undefined) return new Promise(() => {});
    return next instanceof ApiError ? Promise.reject(next) : Promise.resolve(next);
  },
};

const TRIALS: TrialView[] = [trial(0), trial(1), trial(2, { state: "training", seconds: null, value: null })];

beforeEach(() => {
  begin(NOW);
  feed = new FakeFeed();
  feed.set([], [search("s1")]);
  [answers, asked, done, stopped] = [[], [], [], { outcome: "asked", message: "", how: "" }];
});

afterEach(() => {
  view.dispose();
  end();
});

async function open(...first: Answer[]): Promise<void> {
  answers = first;
  const actions = fakeActions(done, () => stopped);
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
  feed.set([], [search("s1", { live: false, state: "LOST" })]);
  await settle();
  expect(asked.length).toBe(1);
  feed.set([], [search("s1")]);
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
  expect(done).toEqual(["openRun run1", "stop run2", "compare run0,run1", "stopSearch s1"]);
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
  await seconds(6);
  expect(isShown(find(".ddl-banner"))).toBe(false);
  answers = [new ApiError("there is no such search", 404, true)];
});

test("a search that was deleted stays as it was", async () => {
  await open(answer("w-1", full(TRIALS, { state: "FINISHED" }), false));
  feed.set([]);
  expect(texts(".ddl-banner")[0]).toContain("This search was deleted");
  expect(texts("tbody .ddl-pick-trial").length).toBe(3);
});
