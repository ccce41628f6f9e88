// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Api } from "../../src/api";
import { RunFeed } from "../../src/panel/feed";
import { answer, finished, run } from "./rows";

/** What the server says next, and what it was asked; without an answer nothing has changed. */
let answers: (object | number | null)[] = [];
let asked: string[] = [];
let hidden = false;
let feed: RunFeed;

const api = new Api(async (path) => {
  asked.push(path.replace("ddl_magics/runs?", ""));
  const next = answers.shift() ?? 204;
  if (next === 0) throw new TypeError("Failed to fetch");
  if (typeof next === "object") return new Response(JSON.stringify(next));
  const body = next === 404 ? "<html>" : '{"message": "said so"}';
  return new Response(next === 204 ? null : body, { status: next });
});

const seconds = (count: number) => vi.advanceTimersByTimeAsync(count * 1000);

beforeEach(async () => {
  vi.useFakeTimers();
  vi.spyOn(document, "hidden", "get").mockImplementation(() => hidden);
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  hidden = false;
  answers = [];
  asked = [];
  feed = new RunFeed(api);
});

afterEach(() => {
  feed.dispose();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** Begins with these answers. */
async function begin(...first: typeof answers): Promise<void> {
  answers = first;
  feed.start();
  await seconds(0.1);
}

test("pages once, then what changed since the first", async () => {
  await begin(answer("v1", [run("r1")], { next: "c", total: 2 }), answer("v9", [run("r2")], { total: 2 }));
  expect(asked).toEqual(["limit=50", "limit=200&cursor=c"]);
  expect([feed.link.kind, feed.list.rows.size]).toEqual(["ready", 2]);
  feed.watch();
  await seconds(0.1);
  expect(asked.slice(2)).toEqual(["since=v1&limit=200"]);
  answers = [answer("v2", [run("r3")], { more: true }), answer("v3", [run("r4")])];
  await seconds(2);
  await seconds(2);
  expect(asked.slice(3)).toEqual(["since=v1&limit=200", "since=v2&limit=200", "since=v3&limit=200"]);
});

test("it is asked less where nobody looks and where nothing goes on, and not at all where the page is hidden", async () => {
  await begin(answer("v1", [run("r1")]));
  const count = async (time: number) => {
    asked = [];
    await seconds(time);
    return asked.length;
  };
  expect(await count(60)).toBe(6);
  const unwatch = feed.watch();
  await seconds(0.1);
  expect(await count(60)).toBe(30);
  answers = [answer("v2", [finished("r1")])];
  await seconds(2);
  expect(await count(60)).toBe(10);
  hidden = true;
  await seconds(20);
  expect(await count(600)).toBe(0);
  hidden = false;
  unwatch();
  expect(await count(60)).toBe(2);
});

test("the reader's interval holds", async () => {
  await begin(answer("v1", [run("r1")]));
  feed.setInterval(10);
  feed.watch();
  await seconds(0.1);
  asked = [];
  await seconds(60);
  expect(asked.length).toBe(6);
});

test("a server that is gone is asked ever less, and what was known stays", async () => {
  await begin(answer("v1", [run("r1")]));
  feed.watch();
  await seconds(0.1);
  asked = [];
  answers = Array(200).fill(0);
  await seconds(3);
  expect(feed.link).toEqual({ kind: "gone", message: "Jupyter Server does not answer" });
  expect(feed.list.rows.size).toBe(1);
  await seconds(600);
  expect(asked.length).toBeLessThan(30);
  answers = [answer("v2", [finished("r1")])];
  feed.refresh();
  await seconds(0.1);
  expect([feed.link.kind, feed.list.live().length]).toEqual(["ready", 0]);
});

test("another server is asked for all anew", async () => {
  await begin(answer("v1", [run("r1"), run("r2")]));
  const ended = vi.fn();
  feed.ended.connect(ended);
  answers = [410, answer("w1", [finished("r2")])];
  feed.refresh();
  await seconds(0.1);
  expect(asked.slice(1)).toEqual(["since=v1&limit=200", "limit=50"]);
  expect([...feed.list.rows.keys()]).toEqual(["r2"]);
  expect(ended).toHaveBeenCalledTimes(1);
});

test.each([
  [0, "gone"],
  [404, "off"],
  [403, "forbidden"],
  [500, "failed"],
])("status %s is %s", async (status, kind) => {
  await begin(status);
  expect(feed.link.kind).toBe(kind);
});

test("questions do not overlap", async () => {
  await begin(answer("v1", []));
  asked = [];
  for (let i = 0; i < 5; i++) feed.refresh();
  await seconds(0.1);
  expect(asked.length).toBe(1);
});

test("a store of any size costs a bounded number of pages", async () => {
  const page = (n: number) => Array.from({ length: 200 }, (_, i) => finished(`r${n * 200 + i}`));
  await begin(...Array.from({ length: 100 }, (_, n) => answer("v1", page(n), { next: "c", total: 20_000 })));
  expect(feed.list.rows.size).toBe(2000);
  expect(asked.length).toBe(10);
});
