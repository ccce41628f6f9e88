// @vitest-environment jsdom
import { expect, test } from "vitest";
import { fileNodes } from "../../src/run/filestab";
import { english } from "../../src/translation";
import { texts } from "../dom";
import { details } from "../panel/rows";

const FILES = [
  { name: "best.keras", size: 52_300_000, path: null },
  { name: "logs/a.csv", size: 312, path: "/home/ada/logs/a.csv" },
];

const downloaded: string[] = [];

function shown(fields: Parameters<typeof details>[1]): HTMLElement {
  const element = document.createElement("div");
  const actions = { downloadFile: (run: string, file: string) => downloaded.push(`${run} ${file}`) };
  element.append(...fileNodes(details("r1", { name: "digits", ...fields }), actions, english));
  return element;
}

test("each file has its size, and where it is", () => {
  const element = shown({ cell_files: FILES });
  expect(texts("tbody th", element)).toEqual(["best.keras", "logs/a.csv"]);
  expect(texts("tbody td", element)).toEqual([
    "52 MB",
    'on the cluster: digits.fetch("best.keras") brings it here',
    "312 bytes",
    "/home/ada/logs/a.csv",
  ]);
});

test("a live run has its files on the cluster", () => {
  expect(texts("tbody td:last-child", shown({ cell_files: FILES, live: true }))[0]).toBe("on the cluster");
});

test("a cell without files says so", () => {
  expect(shown({}).textContent).toBe("The cell itself has written no file.");
  expect(shown({ live: true }).textContent).toContain("when the run ends");
});

test("the trained model can be downloaded", () => {
  const files = ["model-0.keras", "variables.npz", "weights-0.npz"].map((name) => ({ name, size: 4100 }));
  const element = shown({ files });
  expect(texts("tbody th", element)).toEqual(["model-0.keras", "weights-0.npz"]);
  element.querySelector("button")?.click();
  expect(downloaded).toEqual(["r1 model-0.keras"]);
});
