import { expect, test } from "vitest";
import { Api, ApiError } from "../src/api";

const requests: [path: string, method: string | undefined, body: unknown][] = [];

/** An Api whose server always gives this answer. */
function answering(status: number, body: unknown, type = "application/json"): Api {
  requests.length = 0;
  return new Api(async (path, init) => {
    requests.push([path, init.method, init.body]);
    const text = type === "application/json" ? JSON.stringify(body) : String(body);
    return new Response(status === 204 ? null : text, { status, headers: { "Content-Type": type } });
  }, "/user/me/");
}

/** The error with which a request fails. */
async function errorOf(request: Promise<unknown>): Promise<ApiError> {
  try {
    await request;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error("the request did not fail");
}

const ANSWER = { problem: null, runs: [], servers: [], message: "done" };

test.each<[string, string, (api: Api) => Promise<unknown>]>([
  [
    "GET",
    "runs?limit=50&live=true&q=a+b&cursor=1%7Ex",
    (api) => api.list({ limit: 50, live: true, q: "a b", cursor: "1~x" }),
  ],
  ["GET", "runs", (api) => api.list({ q: "" })],
  ["GET", "runs/..%2Fx%3Fy", (api) => api.run("../x?y")],
  ["GET", "runs/r1/logs/-1?tail=true", (api) => api.logs("r1", -1, { tail: true })],
  ["GET", "servers", (api) => api.servers()],
  ["POST", "servers/digits/stop", (api) => api.stopServer("digits")],
  ["DELETE", "runs/r1", (api) => api.delete("r1")],
  ["POST", "runs/r1/stop", (api) => api.stop("r1")],
  ["POST", "searches/s1/stop", (api) => api.stop("s1", "searches")],
])("%s %s", async (method, path, request) => {
  await request(answering(200, ANSWER));
  expect(requests).toEqual([[`ddl_magics/${path}`, method, undefined]]);
});

test("a change of a run is the body of the request", async () => {
  await answering(200, ANSWER).update("r1", { title: "best" });
  expect(requests).toEqual([["ddl_magics/runs/r1", "PATCH", '{"title":"best"}']]);
});

test("what an answer becomes", async () => {
  expect(await answering(200, { servers: [] }).servers()).toEqual([]);
  expect(await answering(200, { message: "digits is not served any more" }).stopServer("digits")).toContain("digits");
  expect(answering(200, {}).exportUrl("r1", "csv")).toBe("/user/me/ddl_magics/runs/r1/export?format=csv");
});

test("no update is null", async () => {
  expect(await answering(204, null).changes("v-1", 200)).toBeNull();
  expect(await answering(204, null).view("r1", { page: "p", n: 3, wait: 20 })).toBeNull();
  expect(requests[0]?.[0]).toBe("ddl_magics/runs/r1/view?page=p&n=3&wait=20");
});

test("a route that must have an answer fails without one", async () => {
  expect((await errorOf(answering(204, null).replay("r1"))).message).toBe("Jupyter Server sent an empty answer");
});

test("a run that cannot be read is an error", async () => {
  const { message, status } = await errorOf(answering(200, { problem: "run.json is damaged" }).run("r1"));
  expect([message, status]).toEqual(["run.json is damaged", 409]);
});

test("the message of the extension is the error", async () => {
  const error = await errorOf(answering(409, { message: "the run has not ended", reason: null }).delete("r1"));
  const { message, status, unreachable, notEnabled } = error;
  expect([message, status, unreachable, notEnabled]).toEqual(["the run has not ended", 409, false, false]);
});

test("a missing extension is told from a missing run", async () => {
  expect((await errorOf(answering(404, "<html>404</html>", "text/html").list())).notEnabled).toBe(true);
  expect((await errorOf(answering(404, { message: "there is no such run" }).run("r1"))).notEnabled).toBe(false);
});

test("a server is unreachable if it does not answer, or not completely", async () => {
  const silent = new Api(() => Promise.reject(new TypeError("Failed to fetch")));
  expect((await errorOf(silent.list())).unreachable).toBe(true);
  expect((await errorOf(answering(200, "{", "text/html").list())).unreachable).toBe(true);
});

test("an aborted request is not an error of the server", async () => {
  const aborter = new AbortController();
  aborter.abort();
  const api = new Api((_, { signal }) => Promise.reject(signal?.reason));
  await expect(api.list({}, aborter.signal)).rejects.toBe(aborter.signal.reason);
});
