/** What a follower asks for, answer by answer. */

import { expect, test } from "vitest";
import type { Api, View } from "../src/api";
import { Follower } from "../src/follow";
import type { Delta } from "../src/view/model";
import { delta, full, STATE } from "./messages";

/** A follower of a server that gives these answers, and what it asks for. */
function following(...answers: (View | null | Error)[]): { follower: Follower; asked: object[] } {
  const asked: object[] = [];
  const view = async (_run: string, query: object) => {
    asked.push(query);
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer ?? null;
  };
  return { follower: new Follower({ view } as unknown as Api, "r1"), asked };
}

function answer({ message, points }: Delta, more = false): View {
  const packed = btoa(String.fromCharCode(...new Uint8Array(points.buffer)));
  return { page: "p", message: { ...message }, buffers: [packed, ""], behind: 0, damaged: 0, more };
}

const LOSS = { "metric:loss": { points: [[1, 0.5]] as [number, number][] } };

test("everything first, then what is new after each message", async () => {
  const next = delta(2, { lines: { "metric:loss": { at: 1, points: [[2, 0.25]] } } });
  const { follower, asked } = following(answer(full(1, { lines: LOSS }), true), answer(next), null);
  expect(await follower.ask(20)).toBe(true);
  expect(await follower.ask(20)).toBe(false);
  expect(await follower.ask(0)).toBe(false);
  expect(asked).toEqual([{}, { page: "p", n: 1, wait: 20 }, { page: "p", n: 2, wait: 0 }]);
  expect(follower.model.line("metric:loss")).toEqual({ x: [1, 2], y: [0.5, 0.25] });
});

test("a message that is missing makes it ask for everything", async () => {
  const { follower, asked } = following(answer(full(1, { lines: LOSS })), answer(delta(3)), answer(full(4)));
  await follower.ask(0);
  expect(await follower.ask(0)).toBe(true);
  await follower.ask(0);
  expect(asked[2]).toEqual({});
  expect(follower.model.line("metric:loss")).toBeUndefined();
});

test("it is done when the run is over and nothing more waits", async () => {
  const over = full(1, { state: { ...STATE, state: "FINISHED" } });
  const { follower } = following(answer(over, true), answer(delta(2)));
  await follower.ask(0);
  expect(follower.done).toBe(false);
  await follower.ask(0);
  expect(follower.done).toBe(true);
});

test("what fails leaves the model as it was, and is asked for again", async () => {
  const { follower, asked } = following(answer(full(1, { lines: LOSS })), new Error("gone"), null);
  await follower.ask(0);
  await expect(follower.ask(0)).rejects.toThrow("gone");
  await follower.ask(0);
  expect(asked[2]).toEqual({ page: "p", n: 1, wait: 0 });
  expect(follower.model.line("metric:loss")?.y).toEqual([0.5]);
});
