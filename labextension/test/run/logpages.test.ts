import { beforeEach, expect, test } from "vitest";
import { LogPages, MOST_LINES } from "../../src/run/logpages";
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

test("the end comes first, what is older when it is asked for, and each line once", async () => {
  server.print(250);
  await pages.follow(signal);
  expect([texts(), pages.hasOlder]).toEqual([numbers(150, 250), true]);
  await pages.older(signal);
  expect(texts()).toEqual(numbers(50, 250));
  await pages.older(signal);
  expect([texts(), pages.hasOlder]).toEqual([numbers(0, 250), false]);
  const asked = server.asked.length;
  await pages.older(signal);
  expect(server.asked).toHaveLength(asked);
});

test("what is printed later is added, and nothing is asked for twice", async () => {
  server.print(30);
  await pages.follow(signal);
  server.print(90);
  await pages.follow(signal);
  expect(texts()).toEqual(numbers(0, 120));
  expect(server.asked.slice(1).map(({ offset }) => offset)).toEqual([30, 70, 110]);
});

test("where the end has no lines of the rank, those before it are looked for", async () => {
  pages = new LogPages(server, "r1", 3);
  server.print(2, 3);
  server.print(300, 0);
  await pages.follow(signal);
  expect([texts(), pages.hasOlder]).toEqual([["line 0", "line 1"], false]);
});

test("a question without an answer leaves everything as it was", async () => {
  server.print(20);
  await pages.follow(signal);
  server.down = true;
  await expect(pages.follow(signal)).rejects.toThrow("does not answer");
  server.down = false;
  server.print(5);
  await pages.follow(signal);
  expect(texts()).toEqual(numbers(0, 25));
});

test("so many lines are kept: the oldest go, and can be asked for again", async () => {
  server.print(10);
  await pages.follow(signal);
  const before = pages.generation;
  server.print(MOST_LINES + 500);
  await pages.follow(signal);
  expect(pages.lines.length).toBeLessThanOrEqual(MOST_LINES);
  expect([pages.lines.at(-1)?.text, pages.hasOlder]).toEqual([`line ${MOST_LINES + 509}`, true]);
  expect(pages.generation).toBeGreaterThan(before);
});
