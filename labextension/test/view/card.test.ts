// @vitest-environment jsdom
/** The card in a document without a layout. */

import "../matchmedia";
import { afterEach, beforeEach, expect, test } from "vitest";
import { RunCard } from "../../src/view/card";
import { type Delta, RunModel } from "../../src/view/model";
import { find, findAll, isShown } from "../dom";
import { begin, drawing, end, frame } from "../layoutless";
import { delta, full, NOW, RUN, STATE } from "../messages";

let model: RunModel;
let card: RunCard;
let apply: (message: Delta) => void;
let stops = 0;

beforeEach(() => {
  begin(NOW);
  stops = 0;
  model = new RunModel();
  card = new RunCard(document.body, { model, onStop: () => stops++ });
  apply = drawing(model, card);
  frame();
});

afterEach(() => {
  card.dispose();
  expect(document.body.children).toHaveLength(0);
  end();
});

test("before the first message the card waits for the kernel", () => {
  expect(find(".ddl-card-line").textContent).toContain("Waiting for the kernel …");
  expect(isShown(find("header"))).toBe(false);
});

test("a running job has its state, numbers and buttons, and follows the run", () => {
  apply(full(1, { latest: { loss: 0.134, accuracy: 0.97 } }));
  expect(find(".ddl-chip").textContent).toBe("RUNNING");
  expect(find(".ddl-card-line").textContent).toBe(
    "loss 0.134, accuracy 0.970epoch 8 of 10 · step 412 of 938 · updated 0.8 s agoShow charts",
  );
  expect(find(".ddl-card").dataset.run).toBe(RUN.id);
  find<HTMLButtonElement>(".ddl-stop").click();
  expect(stops).toBe(1);
  apply(delta(2, { state: { ...STATE, state: "STOPPED", ended: NOW }, latest: { loss: 0.12 } }));
  expect(find(".ddl-chip").textContent).toBe("STOPPED");
  expect(find(".ddl-card-line").textContent).toContain("loss 0.120");
  expect(isShown(find(".ddl-stop"))).toBe(false);
});

test("a failed run says why", () => {
  const failure = { rank: 1, host: "wn4", kind: "error" as const, message: "ValueError: bad", traceback: "Traceback" };
  apply(full(1, { state: { ...STATE, state: "FAILED", failure, ended: NOW } }));
  expect(find(".ddl-cause").textContent).toBe("Rank 1 on wn4 raised an exception: ValueError: bad");
});

test("the charts come and go on request", () => {
  apply(full(1, { lines: { "metric:loss": { points: [[1, 0.5], [2, 0.4]] } } })); // biome-ignore format: one line
  expect(findAll(".ddl-charts")).toHaveLength(0);
  const more = find<HTMLButtonElement>(".ddl-more");
  more.click();
  expect(findAll(".ddl-card-rest .ddl-charts")).toHaveLength(1);
  expect([more.textContent, more.getAttribute("aria-expanded")]).toEqual(["Hide charts", "true"]);
  more.click();
  expect(findAll(".ddl-charts")).toHaveLength(0);
  expect([more.textContent, more.getAttribute("aria-expanded")]).toEqual(["Show charts", "false"]);
});
