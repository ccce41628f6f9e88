// @vitest-environment jsdom
/** The panel in a document without a layout. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ServedModel } from "../../src/generated";
import { PanelView } from "../../src/panel/panel";
import type { IServerFeed } from "../../src/panel/serverfeed";
import { english } from "../../src/translation";
import { dateTime } from "../../src/view/format";
import { find, findAll, isShown, texts, type } from "../dom";
import { FakeFeed, Watched } from "../fakes";
import { finished, NOW, run, search, trial, unreadable } from "./rows";

class FakeServers extends Watched implements IServerFeed {
  servers: ServedModel[] = [];

  set(...servers: Partial<ServedModel>[]): void {
    const latency = { p50: 0.0012, p95: 0.0034, p99: null };
    const common = { version: "2", url: "http://127.0.0.1:8080", grpc: "127.0.0.1:8081", alive: true, problem: "" };
    const counts = { rate: 12.5, rates: [1, 2, 3], requests: 40, errors: 1, recent_errors: 1, dropped: 0, latency };
    const usual = { name: "digits", detached: false, log: null, ...common, ...counts };
    this.servers = servers.map((server) => ({ ...usual, ...server }));
    this.changed.emit();
  }
}

let feed: FakeFeed;
let servers: FakeServers;
let stopped: string[];
let view: PanelView;
let opened: string[];
let matches: (query: string) => Promise<string[]>;

const shown = (selector: string) => isShown(find(selector));
const press = (key: string, modifiers: KeyboardEventInit = {}) =>
  find(".ddl-list").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...modifiers }));

const filter = (text: string) => type(text, ".ddl-filter-words");
const listed = () => findAll(".ddl-row").map((row) => row.dataset.run);

beforeEach(() => {
  vi.useFakeTimers({ now: NOW * 1000 });
  document.body.replaceChildren();
  feed = new FakeFeed();
  servers = new FakeServers();
  stopped = [];
  opened = [];
  matches = async () => [];
  view = new PanelView(document.body, {
    feed,
    servers,
    stopServer: (name) => stopped.push(name),
    trans: english,
    open: (id) => opened.push(id),
    matches: (query) => matches(query),
    selectionChanged: () => {},
    filterChanged: () => {},
  });
});

afterEach(() => {
  view.dispose();
  vi.useRealTimers();
});

test("served models stand above the runs while there are some", () => {
  expect(shown(".ddl-servers")).toBe(false);
  servers.set({}, { name: "gone", alive: false, problem: "its process was killed" });
  expect(shown(".ddl-servers")).toBe(true);
  expect(texts(".ddl-server-name")).toEqual(["digits", "gone"]);
  expect(texts(".ddl-server-version")).toEqual(["version 2", "version 2"]);
  expect(texts(".ddl-server-rate")).toEqual(["12.5 requests/s", ""]);
  expect(texts(".ddl-server-latency")).toEqual(["p50 1.20 · p95 3.40 · p99 – ms", ""]);
  expect(texts(".ddl-server-errors")).toEqual(["1 error", "1 error"]);
  expect(texts(".ddl-server-problem")).toEqual(["", "its process was killed"]);
  expect(texts(".ddl-server-stop")).toEqual(["Stop", "Remove"]);
  expect(find(".ddl-server-stop").getAttribute("aria-label")).toBe("Stop serving digits");
  const button = find(".ddl-server-stop");
  servers.set({ version: "3", dropped: 2 });
  expect(find(".ddl-server-stop")).toBe(button);
  expect(texts(".ddl-server-problem")).toEqual(["2 requests are missing in the log"]);
  button.click();
  expect(stopped).toEqual(["digits"]);
  servers.set();
  expect(shown(".ddl-servers")).toBe(false);
});

test("the texts of the rows", () => {
  feed.set([finished("r9", { name: "mnist", labels: ["best"] }), run("r3"), unreadable("r5")]);
  expect(texts(".ddl-row-name")).toEqual(["digits", "r5", "mnist"]);
  expect(texts(".ddl-row-state")).toEqual(["RUNNING", "UNREADABLE", "FINISHED"]);
  expect(texts(".ddl-row-progress")).toEqual(["42 % · 2:13 left", "run.json is damaged", "5 of 5 epochs"]);
  expect(texts(".ddl-row-time"), "how long it took").toEqual(["3:00", "", "1:00"]);
  expect(findAll(".ddl-row-began")[2]?.title).toBe(`began ${dateTime(NOW - 9 * 60)}`);
  expect(texts(".ddl-row-label")).toEqual(["best"]);
  expect(texts(".ddl-foot")).toEqual(["3 runs · 1 running"]);
});

test("the duration of a live run is updated", () => {
  feed.set([run("r3")]);
  vi.advanceTimersByTime(2000);
  expect(texts(".ddl-row-time")).toEqual(["3:02"]);
});

test("only visible rows are in the document", () => {
  feed.set(Array.from({ length: 1000 }, (_, i) => finished(`r${i}`)));
  expect(findAll(".ddl-row").length).toBeLessThan(30);
  expect(find(".ddl-row").getAttribute("aria-setsize")).toBe("1000");
});

test("a query is answered by the server, once it is typed, and again while runs change", async () => {
  const asked: string[] = [];
  let answer = ["r2"];
  matches = async (query) => {
    asked.push(query);
    if (query.endsWith("<")) throw new Error("lr< needs a number, such as lr<0.5");
    return answer;
  };
  feed.set([run("r1"), run("r2"), run("r3")]);
  filter("lr<0");
  filter("lr<0.1");
  expect(findAll(".ddl-row").length).toBe(3);
  await vi.advanceTimersByTimeAsync(300);
  expect(asked).toEqual(["lr<0.1"]);
  expect(listed()).toEqual(["r2"]);
  answer = ["r2", "r3"];
  feed.set([run("r1"), run("r2"), run("r3")]);
  feed.set([run("r1"), run("r2"), run("r3")]);
  await vi.advanceTimersByTimeAsync(2000);
  expect(asked).toEqual(["lr<0.1", "lr<0.1"]);
  expect(listed()).toEqual(["r2", "r3"]);
  filter("lr<");
  await vi.advanceTimersByTimeAsync(300);
  expect(texts(".ddl-filter-problem")).toEqual(["lr< needs a number, such as lr<0.5"]);
  expect(find(".ddl-filter-words").getAttribute("aria-invalid")).toBe("true");
  filter("digits");
  expect(shown(".ddl-filter-problem")).toBe(false);
  expect(findAll(".ddl-row").length).toBe(3);
  answer = [];
  filter("tag:none");
  await vi.advanceTimersByTimeAsync(300);
  expect(find(".ddl-empty-state").textContent).toContain("No run matches “tag:none”.");
});

test("a slow answer to a query is shown, though runs have changed; one to other words, or an older one, is not", async () => {
  const answers = new Map<number, (found: string[]) => void>();
  matches = () => new Promise((resolve) => answers.set(answers.size, resolve));
  const answer = async (question: number, found: string[]) => {
    answers.get(question)?.(found);
    await vi.advanceTimersByTimeAsync(0);
    return listed();
  };
  feed.set([run("r1"), run("r2"), run("r3")]);
  filter("lr<0.1");
  await vi.advanceTimersByTimeAsync(300);
  feed.set([run("r1"), run("r2"), run("r3")]);
  await vi.advanceTimersByTimeAsync(2000);
  feed.set([run("r1"), run("r2"), run("r3")]);
  await vi.advanceTimersByTimeAsync(2000);
  expect(answers.size).toBe(3);
  expect(await answer(0, ["r1"])).toEqual(["r1"]);
  expect(await answer(2, ["r3"])).toEqual(["r3"]);
  expect(await answer(1, ["r2"])).toEqual(["r3"]);
  filter("lr<0.2");
  await vi.advanceTimersByTimeAsync(300);
  filter("lr<0.3");
  expect(await answer(3, ["r1"])).toEqual(["r3"]);
});

test("an updated row keeps its element", () => {
  feed.set([run("r1"), run("r2")]);
  const before = findAll(".ddl-row");
  feed.set([run("r1"), run("r2", { loss: 0.01 })]);
  expect(findAll(".ddl-row")).toEqual(before);
  expect(texts(".ddl-row-loss")).toEqual(["loss 0.130", "loss 0.0100"]);
});

test("the keyboard selects and opens", () => {
  feed.set([run("r1"), run("r2"), run("r3")]);
  find(".ddl-list").focus();
  press("Home");
  press("ArrowDown", { shiftKey: true });
  expect(view.list.selected).toEqual(["r1", "r2"]);
  const active = find(".ddl-list").getAttribute("aria-activedescendant");
  expect(document.getElementById(active ?? "")?.dataset.run).toBe("r2");
  press("Enter");
  expect(opened).toEqual(["r2"]);
});

test("a run that waits for its turn does not count as running, and says what it waits for", () => {
  feed.set([run("r1"), run("r2", { state: "QUEUED", fraction: null, remaining: null, message: "waits for 2 slots" })]);
  expect(texts(".ddl-foot")).toEqual(["2 runs · 1 running · 1 queued"]);
  expect(texts(".ddl-row-progress")).toContain("waits for 2 slots");
});

/** Its run was stopped after a further epoch, with another value: the row says what the search counts. */
const PRUNED = {
  state: "STOPPED" as const,
  metrics: { val_accuracy: 1 },
  trial_state: "pruned" as const,
  trial_value: 0.9,
  trial_reason: "pruned after epoch 1: val_accuracy 0.9 was low",
};

const withSearch = (...trials: number[]) =>
  feed.set([run("r1"), ...trials.map((number) => trial(`t${number}`, number, "s1", PRUNED))], [search("s1")]);

test("a search is one row that unfolds into its trials", () => {
  withSearch(0, 1);
  expect(texts(".ddl-row-name")).toEqual(["digits", "tuned"]);
  expect(texts(".ddl-row-progress")[1]).toBe("34 of 40 trials · 1:05 left");
  expect(texts(".ddl-row-loss")[1]).toBe("val_accuracy 0.957 · trial 7");
  expect(texts(".ddl-foot")).toEqual(["3 runs · 1 search · 2 running"]);
  const row = findAll(".ddl-row")[1];
  expect([row?.getAttribute("aria-expanded"), row?.getAttribute("aria-level")]).toEqual(["false", "1"]);
  expect(row?.getAttribute("aria-label")).toContain("search tuned, running, 34 of 40 trials");
  row?.querySelector(".ddl-row-fold")?.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  expect(texts(".ddl-row-name")).toEqual(["digits", "tuned", "tuned_0", "tuned_1"]);
  expect(row?.getAttribute("aria-expanded")).toBe("true");
  expect(findAll(".ddl-row[aria-level='2']").length).toBe(2);
  expect(texts(".ddl-row-location").slice(2)).toEqual(["lr 0.00531 · act relu", "lr 0.00531 · act relu"]);
  expect(texts(".ddl-row-loss").slice(2)).toEqual(["val_accuracy 0.900", "val_accuracy 0.900"]);
  expect(texts(".ddl-row-state").slice(2)).toEqual(["PRUNED", "PRUNED"]);
  expect(texts(".ddl-row-progress")[2]).toBe(PRUNED.trial_reason);
  expect(texts(".ddl-row-location")[1]).toBe("tpe search · this machine · a.ipynb");
  expect(view.list.selected).toEqual([]);
});

test("the keyboard unfolds a search, goes to its trials and back", () => {
  withSearch(0, 1);
  find(".ddl-list").focus();
  press("End");
  press("ArrowRight");
  expect(view.list.selected).toEqual(["s1"]);
  press("ArrowRight");
  expect(view.list.selected).toEqual(["t0"]);
  press("ArrowDown", { shiftKey: true });
  expect(view.list.selected).toEqual(["t0", "t1"]);
  press("ArrowLeft");
  expect(view.list.selected).toEqual(["s1"]);
  press("ArrowLeft");
  expect(texts(".ddl-row-name")).toEqual(["digits", "tuned"]);
  press("Enter");
  expect(opened).toEqual(["s1"]);
});

test("a double click opens", () => {
  feed.set([run("r1")]);
  find(".ddl-row-name").dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
  expect(opened).toEqual(["r1"]);
});

test.each([
  [{ kind: "loading" } as const, "Loading runs …"],
  [{ kind: "disabled", message: "" } as const, "jupyter server extension enable ddl_magics.server"],
  [{ kind: "unreachable", message: "" } as const, "Jupyter Server does not respond"],
  [{ kind: "forbidden", message: "" } as const, "Log in again"],
  [{ kind: "failed", message: "it broke" } as const, "it broke"],
])("the reason why it is empty: %j", (connection, text) => {
  feed.set([], [], connection);
  expect(find(".ddl-empty-state").textContent).toContain(text);
  if (connection.kind !== "loading") find(".ddl-empty-state .jp-mod-styled").click();
  expect(feed.refreshed).toBe(connection.kind === "loading" ? 0 : 1);
});

test("an empty list shows how to start a run, and where runs are stored", () => {
  feed.set([]);
  expect(find(".ddl-empty-state").textContent).toContain("%%distributed");
  expect(find(".ddl-empty-state").textContent).toContain("/data");
});

test("a filter without matches can be cleared", () => {
  feed.set([finished("r1"), finished("r2")]);
  filter("nothing");
  expect(find(".ddl-empty-state").textContent).toContain("None of the 2 runs has “nothing”");
  expect(texts(".ddl-foot")).toEqual(["0 of 2 runs"]);
  find(".ddl-empty-state .jp-mod-styled").click();
  expect([texts(".ddl-row-name").length, shown(".ddl-empty-state")]).toEqual([2, false]);
  find(".ddl-filter-live input").click();
  expect(find(".ddl-empty-state").textContent).toContain("All 2 runs have ended");
});

test("while the server does not respond the rows stay, below a banner", () => {
  feed.set([run("r1")], [], { kind: "unreachable", message: "" });
  expect([findAll(".ddl-row").length, shown(".ddl-banner")]).toEqual([1, true]);
});

test("the end of a run is announced", () => {
  feed.set([run("r1")]);
  feed.ended.emit(finished("r1"));
  expect(find("[aria-live]").textContent).toBe("digits: FINISHED");
});

test("texts of a run never become markup", () => {
  feed.set([run("r1", { name: "<img src=x>", labels: ["<b>"], cluster: "<i>" })]);
  expect(findAll(".ddl-row img, .ddl-row b, .ddl-row i").length).toBe(0);
});
