// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Api } from "../../src/api";
import { RunFeed } from "../../src/panel/feed";
import { seconds } from "../layoutless";
import { finished, page, run } from "./rows";

/** The next answers of the server: a body, a status, or 0 for none; by default nothing has changed. */
let answers: (object | number | null)[] = [];
/** The queries that the server got. */
let queries: string[] = [];
let hidden = false;
let feed: RunFeed;

const api = new Api(async (path) => {
  queries.push(path.replace("ddl_magics/runs?", ""));
  const next = answers.shift() ?? 204;
  if (next === 0) throw new TypeError("Failed to fetch");
  if (typeof next === "object") return new Response(JSON.stringify(next));
  const body = next === 404 ? "<html>" : '{"message": "said so"}';
  return new Response(next === 204 ? null : body, { status: next });
});

beforeEach(async () => {
  vi.useFakeTimers();
  vi.spyOn(document, "hidden", "get").mockImplementation(() => hidden);
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  hidden = false;
  answers = [];
  queries = [];
  feed = new RunFeed(api);
});

afterEach(() => {
  feed.dispose();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** Starts the feed with these answers. */
async function start(...first: typeof answers): Promise<void> {
  answers = first;
  feed.start();
  await seconds(0.1);
}

test("it reads the pages once, then the changes since the first page", async () => {
  await start(page("v1", [run("r1")], { next: "c", total: 2 }), page("v9", [run("r2")], { total: 2 }));
  expect(queries).toEqual(["limit=50", "limit=200&cursor=c"]);
  expect([feed.connection.kind, feed.list.rows.size]).toEqual(["ready", 2]);
  feed.watch();
  await seconds(0.1);
  expect(queries.slice(2)).toEqual(["since=v1&limit=200"]);
  answers = [page("v2", [run("r3")], { more: true }), page("v3", [run("r4")])];
  await seconds(2);
  await seconds(2);
  expect(queries.slice(3)).toEqual(["since=v1&limit=200", "since=v2&limit=200", "since=v3&limit=200"]);
});

test("it polls less while nobody watches or no run is live, and not at all while the page is hidden", async () => {
  await start(page("v1", [run("r1")]));
  const count = async (time: number) => {
    queries = [];
    await seconds(time);
    return queries.length;
  };
  expect(await count(60)).toBe(6);
  const unwatch = feed.watch();
  await seconds(0.1);
  expect(await count(60)).toBe(30);
  answers = [page("v2", [finished("r1")])];
  await seconds(2);
  expect(await count(60)).toBe(10);
  hidden = true;
  await seconds(20);
  expect(await count(600)).toBe(0);
  hidden = false;
  unwatch();
  expect(await count(60)).toBe(2);
});

test("the poll interval of the settings is used", async () => {
  await start(page("v1", [run("r1")]));
  feed.setInterval(10);
  feed.watch();
  await seconds(0.1);
  queries = [];
  await seconds(60);
  expect(queries.length).toBe(6);
});

test("while the server does not respond it backs off, and keeps the list", async () => {
  await start(page("v1", [run("r1")]));
  feed.watch();
  await seconds(0.1);
  queries = [];
  answers = Array(200).fill(0);
  await seconds(3);
  expect(feed.connection).toEqual({ kind: "unreachable", message: "Jupyter Server does not respond" });
  expect(feed.list.rows.size).toBe(1);
  await seconds(600);
  expect(queries.length).toBeLessThan(30);
  answers = [page("v2", [finished("r1")])];
  feed.refresh();
  await seconds(0.1);
  expect([feed.connection.kind, feed.list.live().length]).toEqual(["ready", 0]);
});

test("after a restart of the server it reads the pages again", async () => {
  await start(page("v1", [run("r1"), run("r2")]));
  const ended = vi.fn();
  feed.ended.connect(ended);
  answers = [410, page("w1", [finished("r2")])];
  feed.refresh();
  await seconds(0.1);
  expect(queries.slice(1)).toEqual(["since=v1&limit=200", "limit=50"]);
  expect([...feed.list.rows.keys()]).toEqual(["r2"]);
  expect(ended).toHaveBeenCalledTimes(1);
});

test.each([
  [0, "unreachable"],
  [404, "disabled"],
  [403, "forbidden"],
  [500, "failed"],
])("status %s is %s", async (status, kind) => {
  await start(status);
  expect(feed.connection.kind).toBe(kind);
});

test("requests do not overlap", async () => {
  await start(page("v1", []));
  queries = [];
  for (let i = 0; i < 5; i++) feed.refresh();
  await seconds(0.1);
  expect(queries.length).toBe(1);
});

test("the number of pages is bounded", async () => {
  const rows = (n: number) => Array.from({ length: 200 }, (_, i) => finished(`r${n * 200 + i}`));
  await start(...Array.from({ length: 100 }, (_, n) => page("v1", rows(n), { next: "c", total: 20_000 })));
  expect(feed.list.rows.size).toBe(2000);
  expect(queries.length).toBe(10);
});
