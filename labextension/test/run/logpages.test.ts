import { beforeEach, expect, test } from "vitest";
import { LogPages, MAX_LINES } from "../../src/run/logpages";
import { LogServer } from "./log";

const { signal } = new AbortController();
let server: LogServer;
let pages: LogPages;

const texts = () => pages.lines.map(({ text }) => text);
const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => `line ${from + i}`);

beforeEach(() => {
  server = new LogServer();
  pages = new LogPages(server, "r1", "all");
});

test("the end is read first, older lines on request, and each line once", async () => {
  server.print(250);
  await pages.readNew(signal);
  expect([texts(), pages.hasOlder]).toEqual([numbers(150, 250), true]);
  await pages.readOlder(signal);
  expect(texts()).toEqual(numbers(50, 250));
  await pages.readOlder(signal);
  expect([texts(), pages.hasOlder]).toEqual([numbers(0, 250), false]);
  const count = server.queries.length;
  await pages.readOlder(signal);
  expect(server.queries).toHaveLength(count);
});

test("new lines are added, and nothing is requested twice", async () => {
  server.print(30);
  await pages.readNew(signal);
  server.print(90);
  await pages.readNew(signal);
  expect(texts()).toEqual(numbers(0, 120));
  expect(server.queries.slice(1).map(({ offset }) => offset)).toEqual([30, 70, 110]);
});

test("if the end has no lines of the rank, the parts before it are read", async () => {
  pages = new LogPages(server, "r1", 3);
  server.print(2, 3);
  server.print(300, 0);
  await pages.readNew(signal);
  expect([texts(), pages.hasOlder]).toEqual([["line 0", "line 1"], false]);
});

test("a failed request leaves everything unchanged", async () => {
  server.print(20);
  await pages.readNew(signal);
  server.down = true;
  await expect(pages.readNew(signal)).rejects.toThrow("does not respond");
  server.down = false;
  server.print(5);
  await pages.readNew(signal);
  expect(texts()).toEqual(numbers(0, 25));
});

test("the oldest lines are dropped, and can be requested again", async () => {
  server.print(10);
  await pages.readNew(signal);
  const before = pages.generation;
  server.print(MAX_LINES + 500);
  await pages.readNew(signal);
  expect(pages.lines.length).toBeLessThanOrEqual(MAX_LINES);
  expect([pages.lines.at(-1)?.text, pages.hasOlder]).toEqual([`line ${MAX_LINES + 509}`, true]);
  expect(pages.generation).toBeGreaterThan(before);
});
