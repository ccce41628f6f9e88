// @vitest-environment jsdom
/** The panel in a document without a layout. */

import { Signal } from "@lumino/signaling";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Row } from "../../src/api";
import type { Link, RunFeed } from "../../src/panel/feed";
import { PanelView } from "../../src/panel/panel";
import { RunList } from "../../src/panel/runlist";
import { english } from "../../src/translation";
import { answer, finished, NOW, run, unreadable } from "./rows";

/** A feed that is told what it knows. */
class Told {
  list = new RunList();
  link: Link = { kind: "loading" };
  refreshed = 0;
  readonly changed = new Signal<this, void>(this);
  readonly ended = new Signal<this, Row>(this);

  tell(rows: Row[], link: Link = { kind: "ready" }): void {
    this.list = new RunList();
    this.list.page(answer("v1", rows));
    this.link = link;
    this.changed.emit();
  }

  refresh(): void {
    this.refreshed += 1;
  }
}

let feed: Told;
let view: PanelView;
let opened: string[];

const all = (selector: string) => [...document.querySelectorAll<HTMLElement>(selector)];
const find = <E extends HTMLElement>(selector: string) => document.querySelector<E>(selector) as E;
const words = (selector: string) => all(selector).map((element) => element.textContent);
const visible = (selector: string) => find(selector).closest("[hidden]") === null;
const key = (name: string, held: object = {}) =>
  find(".ddl-list").dispatchEvent(
    new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...held }),
  );

function filter(text: string): void {
  find<HTMLInputElement>(".ddl-filter-words").value = text;
  find(".ddl-filter-words").dispatchEvent(new Event("input"));
}

beforeEach(() => {
  vi.useFakeTimers({ now: NOW * 1000 });
  document.body.replaceChildren();
  feed = new Told();
  opened = [];
  view = new PanelView(document.body, {
    feed: feed as unknown as RunFeed,
    trans: english,
    open: (id) => opened.push(id),
    chosen: () => {},
    wished: () => {},
  });
});

afterEach(() => {
  view.dispose();
  vi.useRealTimers();
});

test("rows say what they know", () => {
  feed.tell([finished("r9", { name: "mnist", labels: ["best"] }), run("r3"), unreadable("r5")]);
  expect(words(".ddl-row-name")).toEqual(["digits", "r5", "mnist"]);
  expect(words(".ddl-row-state")).toEqual(["RUNNING", "UNREADABLE", "FINISHED"]);
  expect(words(".ddl-row-far")).toEqual(["42 % · 2:13 left", "run.json is damaged", "5 of 5 epochs"]);
  expect(words(".ddl-row-time")[0]).toBe("3:00");
  expect(words(".ddl-row-label")).toEqual(["best"]);
  expect(words(".ddl-foot")).toEqual(["3 runs · 1 running"]);
});

test("the time of what runs goes on", () => {
  feed.tell([run("r3")]);
  vi.advanceTimersByTime(2000);
  expect(words(".ddl-row-time")).toEqual(["3:02"]);
});

test("a thousand runs are a screenful of elements", () => {
  feed.tell(Array.from({ length: 1000 }, (_, i) => finished(`r${i}`)));
  expect(all(".ddl-row").length).toBeLessThan(30);
  expect(find(".ddl-row").getAttribute("aria-setsize")).toBe("1000");
});

test("a row that does not change keeps its element", () => {
  feed.tell([run("r1"), run("r2")]);
  const before = all(".ddl-row");
  feed.tell([run("r1"), run("r2", { loss: 0.01 })]);
  expect(all(".ddl-row")).toEqual(before);
  expect(words(".ddl-row-loss")).toEqual(["loss 0.130", "loss 0.0100"]);
});

test("the keyboard chooses and opens", () => {
  feed.tell([run("r1"), run("r2"), run("r3")]);
  find(".ddl-list").focus();
  key("Home");
  key("ArrowDown", { shiftKey: true });
  expect(view.list.chosen).toEqual(["r1", "r2"]);
  const active = find(".ddl-list").getAttribute("aria-activedescendant");
  expect(document.getElementById(active as string)?.dataset.run).toBe("r2");
  key("Enter");
  expect(opened).toEqual(["r2"]);
});

test("what is gone is chosen no more", () => {
  feed.tell([run("r1"), run("r2")]);
  key("End");
  feed.tell([run("r1")]);
  expect(view.list.chosen).toEqual([]);
});

test("a double click opens", () => {
  feed.tell([run("r1")]);
  find(".ddl-row-name").dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
  expect(opened).toEqual(["r1"]);
});

test.each([
  [{ kind: "loading" } as const, "Looking for runs …"],
  [{ kind: "off", message: "" } as const, "jupyter server extension enable ddl_magics.server"],
  [{ kind: "gone", message: "" } as const, "Jupyter Server does not answer"],
  [{ kind: "forbidden", message: "" } as const, "Log in again"],
  [{ kind: "failed", message: "it broke" } as const, "it broke"],
])("why it is empty: %j", (link, said) => {
  feed.tell([], link);
  expect(find(".ddl-empty-state").textContent).toContain(said);
  if (link.kind !== "loading") find(".ddl-empty-state button").click();
  expect(feed.refreshed).toBe(link.kind === "loading" ? 0 : 1);
});

test("an empty store says how to fill it, and where it is", () => {
  feed.tell([]);
  expect(find(".ddl-empty-state").textContent).toContain("%%distributed");
  expect(find(".ddl-empty-state").textContent).toContain("/data");
});

test("a filter that matches none can be taken away", () => {
  feed.tell([finished("r1"), finished("r2")]);
  filter("nothing");
  expect(find(".ddl-empty-state").textContent).toContain("None of the 2 runs has “nothing”");
  expect(words(".ddl-foot")).toEqual(["0 of 2 runs"]);
  find(".ddl-empty-state button").click();
  expect([words(".ddl-row-name").length, visible(".ddl-empty-state")]).toEqual([2, false]);
  find(".ddl-filter-live input").click();
  expect(find(".ddl-empty-state").textContent).toContain("All 2 runs have ended");
});

test("rows of a server that is gone stay, and say so", () => {
  feed.tell([run("r1")], { kind: "gone", message: "" });
  expect([all(".ddl-row").length, visible(".ddl-banner")]).toEqual([1, true]);
});

test("the end of a run is said aloud", () => {
  feed.tell([run("r1")]);
  feed.ended.emit(finished("r1"));
  expect(find("[aria-live]").textContent).toBe("digits: FINISHED");
});

test("what a run says is no markup", () => {
  feed.tell([run("r1", { name: "<img src=x>", labels: ["<b>"], cluster: "<i>" })]);
  expect(all(".ddl-row img, .ddl-row b, .ddl-row i").length).toBe(0);
});
