// @vitest-environment jsdom
import { expect, test } from "vitest";
import type { RunDetails } from "../../src/api";
import { bytes, factParts, sections } from "../../src/run/facts";
import { english } from "../../src/translation";
import { finished, NOW } from "../panel/rows";

const DETAILS: RunDetails = {
  ...finished("r2", { metrics: { loss: 0.123456789 }, labels: ["paper"] }),
  spec: { cell: "fit()", name: "digits", workers: 4, rule: null, conf: { "spark.x": "1" } },
  cause: null,
  environment: { python: "3.11" },
  versions: { tensorflow: "2.13.1" },
  place: { livy: "http://h:8998", session: 3 },
  owner: { host: "nb", pid: 7, alive: false },
  files: [{ name: "model-0.keras", size: 52_300_000 }],
  size: 4100,
  stop_requested: false,
  stop: null,
};

test("all that is known stands in a section", () => {
  const told = Object.fromEntries(sections(DETAILS, english, NOW).flatMap(({ facts }) => facts));
  expect(told).toMatchObject({
    id: "r2",
    loss: "0.12346",
    tags: "paper",
    duration: "1:00",
    "--workers": "4",
    "--conf spark.x": "1",
    "cluster's tensorflow": "2.13.1",
    "notebook's python": "3.11",
    session: "3",
    kernel: "process 7 on nb, gone",
    events: "4.1 kB",
    "model-0.keras": "52 MB",
  });
  expect(told["--rule"]).toBeUndefined();
});

test("a failure comes first, with its traceback as text", () => {
  const cause = { rank: 1, host: "wn4", kind: "error", message: "ValueError: <b>", traceback: "Traceback …" };
  const [first] = factParts({ ...DETAILS, cause }, english) as HTMLElement[];
  expect(first?.querySelector("p")?.textContent).toBe("Rank 1 on wn4 raised an exception: ValueError: <b>");
  expect([first?.querySelector("pre")?.textContent, first?.querySelector("b")]).toEqual(["Traceback …", null]);
  expect(factParts(DETAILS, english)).toHaveLength(1);
});

test("sizes are words", () => {
  expect([1, 312, 4100, 52_300_000, 7e12].map(bytes)).toEqual(["1 byte", "312 bytes", "4.1 kB", "52 MB", "7000 GB"]);
});
