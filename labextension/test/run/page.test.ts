// @vitest-environment jsdom
/** The page of a run in a document without a layout. */

import "../matchmedia";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ApiError } from "../../src/api";
import { DEFAULT_SETTINGS, type RunState, type View } from "../../src/generated";
import { RunPage } from "../../src/run/page";
import { english } from "../../src/translation";
import { find, findAll, isShown } from "../dom";
import { FakeFeed, fakeActions } from "../fakes";
import { begin, end, seconds } from "../layoutless";
import { delta, full, NOW, STATE, view } from "../messages";
import { details, finished, run } from "../panel/rows";

const FINISHED: RunState = { ...STATE, state: "FINISHED", ended: NOW };

type Answer = View | Error | Promise<View>;

/** The requests that the server got, and the actions that were called. */
let requests: string[];
let called: string[];
let feed: FakeFeed;
let page: RunPage;

const banner = () => (isShown(find(".ddl-banner")) ? find(".ddl-banner").textContent : "");

function button(text: string): HTMLElement {
  const found = findAll("button").find(({ textContent }) => textContent === text);
  if (!found) throw new Error(`no button ${text}`);
  return found;
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
    feed,
    settings: DEFAULT_SETTINGS,
    actions: fakeActions(called),
    trans: english,
    run: "r1",
  });
  await seconds(0.1);
}

beforeEach(() => {
  begin(NOW);
  [requests, called, feed] = [[], [], new FakeFeed()];
});

afterEach(() => {
  page.dispose();
  end();
});

test("the header has the title of the list, the state of the view, and the actions", async () => {
  feed.set([run("r1", { title: "the best" })]);
  await open(view(full(1)));
  expect([find("h1").textContent, find(".ddl-runpage-state").textContent]).toEqual(["the best", "RUNNING"]);
  expect([isShown(button("Stop…")), isShown(button("Delete…"))]).toEqual([true, false]);
  for (const text of ["Stop…", "Open Notebook", "Copy as Cell", "HTML"]) button(text).click();
  expect(called).toEqual(["stop r1", "openNotebook r1", "copyAsCell r1", "exportRun r1 html"]);
});

test("a run that has ended is not polled any more, and can be deleted", async () => {
  await open(view(full(1)), view(delta(2, { state: FINISHED })));
  expect([isShown(button("Stop…")), isShown(button("Delete…"))]).toEqual([false, true]);
  await seconds(60);
  expect(requests).toEqual(["view", "view"]);
});

test("a run that has ended is shown as ended while its events are read in parts", async () => {
  feed.set([finished("r1")]);
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
  let answer: (message: View) => void = () => {};
  await open(view(full(1)), new Promise<View>((resolve) => { answer = resolve; })); // biome-ignore format: short
  button("Details").click();
  await seconds(0.1);
  answer(view(delta(2, { state: FINISHED })));
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
  feed.set([finished("r1")]);
  await open(view(full(1, { state: FINISHED })));
  feed.set([]);
  expect(banner()).toContain("deleted");
  expect(isShown(find(".ddl-runpage-actions"))).toBe(false);
});
