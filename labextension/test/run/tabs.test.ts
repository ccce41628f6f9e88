// @vitest-environment jsdom
import { beforeEach, expect, test } from "vitest";
import { Tabs } from "../../src/run/tabs";
import { h } from "../../src/view/dom";

/** "+" a tab became visible, "-" it was hidden. */
let events: string[];

const content = (name: string) => ({
  element: h("p", {}, name),
  show: () => void events.push(`+${name}`),
  hide: () => void events.push(`-${name}`),
});
const tabs = () => [...document.querySelectorAll<HTMLElement>("[role=tab]")];
const selected = () => tabs().filter((tab) => tab.getAttribute("aria-selected") === "true").map((tab) => tab.textContent); // biome-ignore format: a list
const shown = () => [...document.querySelectorAll<HTMLElement>("[role=tabpanel]")].filter(({ hidden }) => !hidden);
const key = (name: string) =>
  document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));

beforeEach(() => {
  events = [];
  document.body.replaceChildren();
  const made = new Tabs(
    "parts",
    ["Charts", "Logs", "Cell"].map((title) => ({ title, content: content(title) })),
  );
  document.body.append(made.element);
});

test("the first tab is selected, the others are hidden", () => {
  expect([selected(), events]).toEqual([["Charts"], ["+Charts"]]);
  expect(shown().map(({ textContent }) => textContent)).toEqual(["Charts"]);
});

test("a click selects a tab and hides the one before", () => {
  tabs()[2]?.click();
  expect([selected(), events]).toEqual([["Cell"], ["+Charts", "-Charts", "+Cell"]]);
  tabs()[2]?.click();
  expect(events).toHaveLength(3);
});

test("arrows, Home and End move along the tabs, which are one Tab stop", () => {
  tabs()[0]?.focus();
  const walked = ["ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home"].map((name) => {
    key(name);
    expect(tabs().filter((tab) => tab.tabIndex === 0)).toHaveLength(1);
    return selected()[0];
  });
  expect(walked).toEqual(["Logs", "Cell", "Cell", "Logs", "Charts"]);
});

test("tabs and panels refer to each other", () => {
  for (const tab of tabs()) {
    const panel = document.getElementById(tab.getAttribute("aria-controls") ?? "");
    expect(panel?.getAttribute("aria-labelledby")).toBe(tab.id);
  }
});
