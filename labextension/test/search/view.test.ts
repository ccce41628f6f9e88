// @vitest-environment jsdom
/** The view of a search in a document without a layout. */

import "../matchmedia";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { SearchMessage } from "../../src/generated";
import { SearchModel } from "../../src/search/model";
import { SearchView } from "../../src/search/view";
import { find, findAll, isShown, texts } from "../dom";
import { begin, drawing, end, frame } from "../layoutless";
import { full, NOW, trial, update } from "./trials";

let view: SearchView;
let apply: (message: SearchMessage) => void;
let model: SearchModel;
let asked: (string | number)[] = [];

const TRIALS = [
  trial(0, { value: 0.5 }),
  trial(1, { value: 0.9, params: [1e-3, null] }),
  trial(2, { state: "pruned", value: 0.25, epochs: 3, reason: "pruned after epoch 3: val_accuracy 0.25 was low" }),
  trial(3, { state: "training", value: 0.75, seconds: null, begun: NOW - 12, epochs: 2 }),
  trial(4, { state: "failed", value: null, reason: "ValueError: bad", curve: [], epochs: 0 }),
];

const firstColumn = () => texts("tbody .ddl-pick-trial");

beforeEach(() => {
  begin(NOW);
  [asked, model] = [[], new SearchModel()];
  view = new SearchView(document.body, {
    model,
    onStop: () => asked.push("stop"),
    onStopTrial: (number) => asked.push(number),
  });
  apply = drawing(model, view);
  frame();
});

afterEach(() => {
  view.dispose();
  end();
});

test("before the first message the view waits for the kernel", () => {
  expect(isShown(find(".ddl-empty"))).toBe(true);
  expect(isShown(find("header"))).toBe(false);
});

test("a search that runs", () => {
  apply(full(TRIALS, { front: [1] }));
  expect(find(".ddl-title").textContent).toBe("RUNNINGtuned4 of 5 trials · tpe, asha, 4 at a time, 1 worker each");
  expect(find(".ddl-times").textContent).toBe("1:40 elapsed · about 1:05 left");
  expect(find("[role=progressbar]").getAttribute("aria-valuenow")).toBe("4");
  expect(find(".ddl-values").textContent).toBe("best 0.900 · trial 1");
  expect(texts("thead button")).toEqual(["trial", "state", "val_accuracy", "lr", "act", "epochs", "time"]);
  expect(texts("tbody tr:first-child td")).toEqual(["1", "best stop", "0.900", "0.00100", "None", "9", "0:30"]);
  expect(texts(".ddl-trial-state span")).toEqual([
    "best",
    "finished",
    "training",
    "pruned after epoch 3: val_accuracy 0.25 was low",
    "failed: ValueError: bad",
  ]);
  expect(find(".ddl-foot").textContent).toBe("2 finished · 1 pruned (6 of 29 epochs saved) · 1 failed");
});

test("each heading of the table says what its column has", () => {
  apply(full(TRIALS));
  for (const heading of findAll("thead th")) expect(heading.title, heading.textContent ?? "").toBeTruthy();
});

test("its end", () => {
  apply(full(TRIALS, { front: [1] }));
  apply(update(2, [], { state: "STOPPED", message: "stopped: it was asked to", seconds: 130, left: null, front: [1] }));
  expect(find(".ddl-times").textContent).toBe("took 2:10");
  expect(find(".ddl-message").textContent).toBe("stopped: it was asked to");
  expect(isShown(find(".ddl-stop"))).toBe(false);
  expect(findAll(".ddl-stop-trial").some(isShown)).toBe(false);
});

test("the table sorts by a click on a heading, the other way at the second, best first at the third", () => {
  apply(full(TRIALS, { front: [1] }));
  expect(firstColumn()).toEqual(["1", "0", "3", "2", "4"]);
  const click = () => {
    find("thead th:nth-child(4) button").click();
    frame();
  };
  click();
  expect(firstColumn()[0]).toBe("1");
  expect(find("thead th:nth-child(4)").getAttribute("aria-sort")).toBe("ascending");
  click();
  expect(firstColumn().at(-1)).toBe("1");
  click();
  expect(firstColumn()).toEqual(["1", "0", "3", "2", "4"]);
});

test("only the first rows of many are drawn, until more are wanted", () => {
  apply(full(Array.from({ length: 120 }, (_, i) => trial(i))));
  expect(findAll("tbody tr")).toHaveLength(50);
  const more = find(".ddl-more");
  expect(more.textContent).toBe("70 more");
  more.click();
  frame();
  expect(findAll("tbody tr")).toHaveLength(100);
});

test("stop one trial, or all", () => {
  apply(full(TRIALS, { front: [1] }));
  const [stop] = findAll<HTMLButtonElement>(".ddl-stop-trial").filter(isShown);
  stop?.click();
  find(".ddl-stop").click();
  expect(asked).toEqual([3, "stop"]);
  expect(find(".ddl-stop").textContent).toBe("Stopping…");
});

test("while the cell waits, nothing can be clicked", () => {
  apply(full(TRIALS, {}, { waiting: true }));
  expect([isShown(find(".ddl-stop")), isShown(find(".ddl-hint"))]).toEqual([false, true]);
  expect(findAll(".ddl-stop-trial").some(isShown)).toBe(false);
});

test("a trial that is picked stands out, until it is picked again", () => {
  apply(full(TRIALS, { front: [1] }));
  const look = () => findAll(".ddl-lines path[data-look=picked]").map((path) => path.getAttribute("d") !== "");
  expect(look()).toEqual([false, false]);
  find("tbody tr:nth-child(2) button").click();
  frame();
  expect(look()).toEqual([true, true]);
  expect(find(".ddl-values").textContent).toBe("0.500 · trial 0");
  find("tbody tr:nth-child(2) button").click();
  frame();
  expect(look()).toEqual([false, false]);
});

test("keys choose a part of an axis, and Escape all of it", () => {
  apply(full(TRIALS, { front: [1] }));
  const handle = find(".ddl-handle");
  expect(handle.getAttribute("aria-label")).toBe("lower end of the chosen part of lr");
  const press = (key: string, times = 1) => {
    for (let i = 0; i < times; i++) handle.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    frame();
  };
  press("ArrowUp", 9);
  expect(handle.getAttribute("aria-valuenow")).toBe("45");
  expect(find(".ddl-parallel .ddl-values").textContent).toBe("4 of 5 trials chosen");
  expect(firstColumn()).toEqual(["0", "3", "2", "4"]);
  press("Escape");
  expect(find(".ddl-parallel .ddl-values").textContent).toBe("drag along an axis to choose");
  expect(firstColumn()).toHaveLength(5);
});

test("several objectives have columns, axes and more than one best trial", () => {
  const trials = [
    trial(0, { others: [10] }),
    trial(1, { value: 0.9, others: [99] }),
    trial(2, { value: 0.4, others: [50] }),
  ];
  apply(full(trials, { front: [0, 1] }, { others: ["size"] }));
  expect(texts("thead button")).toEqual(["trial", "state", "val_accuracy", "size", "lr", "act", "epochs", "time"]);
  expect(texts(".ddl-trial-state span")).toEqual(["best", "best", "finished"]);
  expect(findAll(".ddl-parallel .ddl-axis")).toHaveLength(4);
  expect(find(".ddl-values").textContent).toBe("");
  find("thead th:nth-child(4) button").click();
  frame();
  expect(firstColumn()).toEqual(["0", "2", "1"]);
});
