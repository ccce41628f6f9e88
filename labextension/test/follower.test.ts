import { expect, test } from "vitest";
import { Follower } from "../src/follower";
import type { View } from "../src/generated";
import { delta, full, type Lines, STATE, view } from "./messages";

/** A follower with a server that gives these answers, and the queries that it sends. */
function following(...answers: (View | null | Error)[]): { follower: Follower; queries: object[] } {
  const queries: object[] = [];
  const api = {
    view: async (_run: string, query: object) => {
      queries.push(query);
      const answer = answers.shift();
      if (answer instanceof Error) throw answer;
      return answer ?? null;
    },
  };
  return { follower: new Follower(api, "r1"), queries };
}

const LOSS: Lines = { "metric:loss": { points: [[1, 0.5]] } };

test("the first poll asks for everything, the next ones for what is new", async () => {
  const next = delta(2, { lines: { "metric:loss": { at: 1, points: [[2, 0.25]] } } });
  const { follower, queries } = following(view(full(1, { lines: LOSS }), true), view(next), null);
  expect(await follower.poll(20)).toBe(true);
  expect(await follower.poll(20)).toBe(false);
  expect(await follower.poll(0)).toBe(false);
  expect(queries).toEqual([{}, { page: "p", n: 1, wait: 20 }, { page: "p", n: 2, wait: 0 }]);
  expect(follower.model.line("metric:loss")).toEqual({ x: [1, 2], y: [0.5, 0.25] });
});

test("after a missing message it asks for everything", async () => {
  const { follower, queries } = following(view(full(1, { lines: LOSS })), view(delta(3)), view(full(4)));
  await follower.poll(0);
  expect(await follower.poll(0)).toBe(true);
  await follower.poll(0);
  expect(queries[2]).toEqual({});
  expect(follower.model.line("metric:loss")).toBeUndefined();
});

test("it is done when the run has ended and nothing more is waiting", async () => {
  const ended = full(1, { state: { ...STATE, state: "FINISHED" } });
  const { follower } = following(view(ended, true), view(delta(2)));
  await follower.poll(0);
  expect(follower.done).toBe(false);
  await follower.poll(0);
  expect(follower.done).toBe(true);
});

test("a failed poll leaves the model unchanged, and the next one repeats it", async () => {
  const { follower, queries } = following(view(full(1, { lines: LOSS })), new Error("gone"), null);
  await follower.poll(0);
  await expect(follower.poll(0)).rejects.toThrow("gone");
  await follower.poll(0);
  expect(queries[2]).toEqual({ page: "p", n: 1, wait: 0 });
  expect(follower.model.line("metric:loss")?.y).toEqual([0.5]);
});
