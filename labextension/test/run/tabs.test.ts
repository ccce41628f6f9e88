// @vitest-environment jsdom
import { beforeEach, expect, test } from "vitest";
import { Tabs } from "../../src/run/tabs";
import { h } from "../../src/view/dom";

let told: string[];

const part = (name: string) => ({
  element: h("p", {}, name),
  show: () => void told.push(`+${name}`),
  hide: () => void told.push(`-${name}`),
});
const tabs = () => [...document.querySelectorAll<HTMLElement>("[role=tab]")];
const chosen = () => tabs().filter((tab) => tab.getAttribute("aria-selected") === "true").map((tab) => tab.textContent); // biome-ignore format: a list
const seen = () => [...document.querySelectorAll<HTMLElement>("[role=tabpanel]")].filter(({ hidden }) => !hidden);
const key = (name: string) =>
  document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));

beforeEach(() => {
  told = [];
  document.body.replaceChildren();
  const made = new Tabs(
    "parts",
    ["Charts", "Logs", "Cell"].map((title) => ({ title, part: part(title) })),
  );
  document.body.append(made.element);
});

test("the first is chosen, and the others are not seen", () => {
  expect([chosen(), seen().map(({ textContent }) => textContent), told]).toEqual([["Charts"], ["Charts"], ["+Charts"]]);
});

test("a click chooses; the part before is told that it is not seen any more", () => {
  tabs()[2]?.click();
  expect([chosen(), told]).toEqual([["Cell"], ["+Charts", "-Charts", "+Cell"]]);
  tabs()[2]?.click();
  expect(told).toHaveLength(3);
});

test("the arrows go along the tabs, Home and End to their ends; one of them is reached with Tab", () => {
  tabs()[0]?.focus();
  const walked = ["ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home"].map((name) => {
    key(name);
    expect(
      tabs()
        .map((tab) => tab.tabIndex)
        .filter((index) => index === 0),
    ).toHaveLength(1);
    return chosen()[0];
  });
  expect(walked).toEqual(["Logs", "Cell", "Cell", "Logs", "Charts"]);
});

test("tabs and panels name each other", () => {
  for (const tab of tabs()) {
    const panel = document.getElementById(tab.getAttribute("aria-controls") ?? "");
    expect(panel?.getAttribute("aria-labelledby")).toBe(tab.id);
  }
});
