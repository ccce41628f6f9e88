// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LogPages } from "../../src/run/logpages";
import { LogsPart } from "../../src/run/logs";
import { english } from "../../src/translation";
import { LogServer } from "./log";

let server: LogServer;
let live: boolean;
let seen: boolean;
let logs: LogsPart;

const find = <E extends HTMLElement>(selector: string) => document.querySelector<E>(selector) as E;
const lines = () => [...document.querySelectorAll(".ddl-runpage-log > div > span")].map((span) => span.textContent);
const count = () => find("[role=status]").textContent;
const seconds = (time: number) => vi.advanceTimersByTimeAsync(time * 1000);

function search(words: string): void {
  find<HTMLInputElement>("input").value = words;
  find("input").dispatchEvent(new Event("input"));
}

beforeEach(() => {
  vi.useFakeTimers();
  server = new LogServer();
  [live, seen] = [true, true];
  logs = new LogsPart({
    pages: (rank) => new LogPages(server, "r1", rank),
    workers: () => 2,
    live: () => live,
    seen: () => seen,
    seconds: () => 2,
    trans: english,
  });
  document.body.replaceChildren(logs.element);
});

afterEach(() => {
  logs.hide();
  vi.useRealTimers();
});

test("nothing is asked before it is seen, nor after it is hidden", async () => {
  await seconds(10);
  expect(server.asked).toEqual([]);
  logs.show();
  await seconds(5);
  logs.hide();
  const asked = server.asked.length;
  expect(asked).toBe(3);
  await seconds(10);
  seen = false;
  logs.show();
  await seconds(10);
  expect(server.asked).toHaveLength(asked);
});

test("a run that goes on is followed; one that has ended is asked for once more", async () => {
  server.print(3);
  logs.show();
  await seconds(0.1);
  expect(lines()).toEqual(["line 0", "line 1", "line 2"]);
  server.print(1, 1, "⚠ said");
  await seconds(2);
  expect([lines().at(-1), count()]).toEqual(["⚠ said 3", "4 lines"]);
  live = false;
  await seconds(2);
  const asked = server.asked.length;
  await seconds(10);
  expect(server.asked).toHaveLength(asked);
});

test("a line is text, whatever it holds", async () => {
  server.print(1, 0, "<img src=x onerror=alert(1)>");
  logs.show();
  await seconds(0.1);
  search("IMG");
  expect([find(".ddl-runpage-log img"), find("mark").textContent]).toEqual([null, "img"]);
});

test("the search keeps the lines that have the words, and those that come later", async () => {
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

test("one rank alone, and the job", async () => {
  server.print(2, 0);
  server.print(3, 1);
  server.print(1, -1);
  logs.show();
  await seconds(0.1);
  const rank = find<HTMLSelectElement>("select");
  expect([...rank.options].map(({ text }) => text)).toEqual(["All ranks", "The job", "Rank 0", "Rank 1"]);
  for (const [value, shown] of [
    ["1", 3],
    ["-1", 1],
    ["all", 6],
  ] as const) {
    // biome-ignore format: a table
    rank.value = value;
    rank.dispatchEvent(new Event("change"));
    await seconds(0.1);
    expect(lines()).toHaveLength(shown);
  }
});

test("older lines come when they are asked for", async () => {
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

test("a server that does not answer is told, and asked again", async () => {
  server.down = true;
  logs.show();
  await seconds(0.1);
  expect(find(".ddl-banner").hidden).toBe(false);
  server.down = false;
  server.print(1);
  await seconds(2);
  expect([find(".ddl-banner").hidden, lines()]).toEqual([true, ["line 0"]]);
});
