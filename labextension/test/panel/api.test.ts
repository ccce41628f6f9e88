import { expect, test } from "vitest";
import { Api, ApiError } from "../../src/api";

const asked: [string, string | undefined, unknown][] = [];

/** An Api whose server gives this answer. */
function served(status: number, body: unknown, type = "application/json"): Api {
  asked.length = 0;
  return new Api(async (path, init) => {
    asked.push([path, init.method, init.body]);
    const text = type === "application/json" ? JSON.stringify(body) : String(body);
    return new Response(status === 204 ? null : text, { status, headers: { "Content-Type": type } });
  }, "/user/me/");
}

const failure = (promise: Promise<unknown>) => promise.then(() => null, (error: ApiError) => error); // biome-ignore format: short

test("a list is asked for by its words", async () => {
  await served(200, { runs: [] }).list({ limit: 50, live: true, q: "a b", cursor: "1~x" });
  expect(asked).toEqual([["ddl_magics/runs?limit=50&live=true&q=a+b&cursor=1%7Ex", "GET", undefined]]);
});

test("what is not given is not asked for", async () => {
  await served(200, {}).list({ q: "" });
  expect(asked[0]?.[0]).toBe("ddl_magics/runs");
});

test("nothing new is null", async () => {
  expect(await served(204, null).changes("v-1", 200)).toBeNull();
  expect(await served(204, null).view("r1", { page: "p", n: 3, wait: 20 })).toBeNull();
  expect(asked[0]?.[0]).toBe("ddl_magics/runs/r1/view?page=p&n=3&wait=20");
});

test("an id cannot leave its place in the path", async () => {
  await served(200, {}).run("../x?y");
  expect(asked[0]?.[0]).toBe("ddl_magics/runs/..%2Fx%3Fy");
  expect(served(200, {}).exportUrl("r1", "csv")).toBe("/user/me/ddl_magics/runs/r1/export?format=csv");
});

test("what changes a run", async () => {
  await served(200, {}).patch("r1", { title: "best" });
  expect(asked).toEqual([["ddl_magics/runs/r1", "PATCH", '{"title":"best"}']]);
  await served(204, null).remove("r1");
  expect(asked[0]?.slice(0, 2)).toEqual(["ddl_magics/runs/r1", "DELETE"]);
  await served(200, {}).stop("r1");
  expect(asked[0]?.slice(0, 2)).toEqual(["ddl_magics/runs/r1/stop", "POST"]);
  await served(200, {}).logs("r1", -1, { tail: true });
  expect(asked[0]?.[0]).toBe("ddl_magics/runs/r1/logs/-1?tail=true");
});

test("the server's own line is the error", async () => {
  const error = await failure(served(409, { message: "the run goes on", reason: null }).remove("r1"));
  expect([error?.message, error?.status, error?.gone, error?.notEnabled]).toEqual([
    "the run goes on",
    409,
    false,
    false,
  ]);
});

test("a server without our extension is told from a run that is not there", async () => {
  expect((await failure(served(404, "<html>404</html>", "text/html").list()))?.notEnabled).toBe(true);
  expect((await failure(served(404, { message: "there is no such run" }).run("r1")))?.notEnabled).toBe(false);
});

test("no server is gone, and so is one that breaks off", async () => {
  const silent = new Api(() => Promise.reject(new TypeError("Failed to fetch")));
  expect((await failure(silent.list()))?.gone).toBe(true);
  expect((await failure(served(200, "{", "text/html").list()))?.gone).toBe(true);
});

test("who gives up is not told that the server is gone", async () => {
  const given = new AbortController();
  given.abort();
  const api = new Api((_, { signal }) => Promise.reject(signal?.reason));
  const error = await failure(api.list({}, given.signal));
  expect(error).not.toBeInstanceOf(ApiError);
});
