// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LogPages } from "../../src/run/logpages";
import { LogsTab } from "../../src/run/logstab";
import { english } from "../../src/translation";
import { find, findAll, texts, type } from "../dom";
import { seconds } from "../layoutless";
import { LogServer } from "./log";

let server: LogServer;
let live: boolean;
let visible: boolean;
let logs: LogsTab;

const lines = () => texts(".ddl-runpage-log > div > span");
const count = () => find("[role=status]").textContent;
const search = (text: string) => type(text, "input");

beforeEach(() => {
  vi.useFakeTimers();
  server = new LogServer();
  [live, visible] = [true, true];
  logs = new LogsTab({
    pages: (rank) => new LogPages(server, "r1", rank),
    ranks: () => 2,
    live: () => live,
    visible: () => visible,
    seconds: () => 2,
    trans: english,
  });
  document.body.replaceChildren(logs.element);
});

afterEach(() => {
  logs.hide();
  vi.useRealTimers();
});

test("the tab polls only while it and the page are visible", async () => {
  await seconds(10);
  expect(server.queries).toEqual([]);
  logs.show();
  await seconds(5);
  logs.hide();
  const requests = server.queries.length;
  expect(requests).toBe(3);
  await seconds(10);
  visible = false;
  logs.show();
  await seconds(10);
  expect(server.queries).toHaveLength(requests);
});

test("a live run is polled, and once more after it has ended", async () => {
  server.print(3);
  logs.show();
  await seconds(0.1);
  expect(lines()).toEqual(["line 0", "line 1", "line 2"]);
  server.print(1, 1, "⚠ said");
  await seconds(2);
  expect([lines().at(-1), count()]).toEqual(["⚠ said 3", "4 lines"]);
  live = false;
  await seconds(2);
  const requests = server.queries.length;
  await seconds(10);
  expect(server.queries).toHaveLength(requests);
});

test("a line never becomes markup", async () => {
  server.print(1, 0, "<img src=x onerror=alert(1)>");
  logs.show();
  await seconds(0.1);
  search("IMG");
  expect([findAll(".ddl-runpage-log img"), find("mark").textContent]).toEqual([[], "img"]);
});

test("the search filters present and new lines", async () => {
  server.print(20);
  logs.show();
  await seconds(0.1);
  search("LINE 1");
  expect([lines().length, count()]).toEqual([11, "11 of 20 lines"]);
  server.print(80);
  await seconds(2);
  expect(count()).toBe("11 of 100 lines");
  search("");
  expect(lines()).toHaveLength(100);
});

test("the lines of one rank, or of the job", async () => {
  server.print(2, 0);
  server.print(3, 1);
  server.print(1, -1);
  logs.show();
  await seconds(0.1);
  const rank = find<HTMLSelectElement>("select");
  expect([...rank.options].map(({ text }) => text)).toEqual(["All ranks", "The job", "Rank 0", "Rank 1"]);
  for (const [value, shown] of Object.entries({ "1": 3, "-1": 1, all: 6 })) {
    rank.value = value;
    rank.dispatchEvent(new Event("change"));
    await seconds(0.1);
    expect(lines()).toHaveLength(shown);
  }
});

test("older lines are loaded on request", async () => {
  server.print(150);
  live = false;
  logs.show();
  await seconds(0.1);
  expect([lines()[0], count()]).toEqual(["line 50", "the newest 100 lines"]);
  find("button").click();
  await seconds(0.1);
  expect([lines()[0], lines().length, count()]).toEqual(["line 0", 150, "150 lines"]);
  expect(find("button").hidden).toBe(true);
});

test("an error of the server is shown, and the request repeated", async () => {
  server.down = true;
  logs.show();
  await seconds(0.1);
  expect(find(".ddl-banner").hidden).toBe(false);
  server.down = false;
  server.print(1);
  await seconds(2);
  expect([find(".ddl-banner").hidden, lines()]).toEqual([true, ["line 0"]]);
});
