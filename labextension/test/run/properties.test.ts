// @vitest-environment jsdom
import { expect, test } from "vitest";
import type { Failure, RunDetails } from "../../src/generated";
import { byteSize, detailNodes, sections } from "../../src/run/properties";
import { english } from "../../src/translation";
import { find, texts } from "../dom";
import { details, NOW } from "../panel/rows";

const DETAILS = details("r2", {
  metrics: { loss: 0.123456789 },
  labels: ["paper"],
  spec: { cell: "fit()", name: "digits", workers: 4, rule: null, conf: { "spark.x": "1" } },
  environment: { python: "3.11" },
  versions: { tensorflow: "2.13.1" },
  driver_address: { livy: "http://h:8998", session: 3 },
  owner: { host: "nb", pid: 7, heartbeat: null, alive: false },
  files: [{ name: "model-0.keras", size: 52_300_000 }],
  size: 4100,
});

test("the sections have everything that is known", () => {
  const properties = Object.fromEntries(
    sections(DETAILS, english, NOW, DETAILS.created + 20).flatMap((section) => section.properties),
  );
  expect(properties).toMatchObject({
    id: "r2",
    loss: "0.12346",
    tags: "paper",
    "time trained": "0:40",
    "time with waiting": "1:00",
    "--workers": "4",
    "--conf spark.x": "1",
    "cluster's tensorflow": "2.13.1",
    "notebook's python": "3.11",
    session: "3",
    kernel: "process 7 on nb, gone",
    events: "4.1 kB",
    "model-0.keras": "52 MB",
  });
  expect(properties["--rule"]).toBeUndefined();
});

test("a failure comes first, with its traceback as text", () => {
  const cause: Failure = { rank: 1, host: "wn4", kind: "error", message: "ValueError: <b>", traceback: "Traceback …" };
  const element = document.createElement("div");
  element.append(...detailNodes({ ...DETAILS, cause }, english));
  const failure = find(":first-child", element);
  expect(find("p", failure).textContent).toBe("Rank 1 on wn4 raised an exception: ValueError: <b>");
  expect([find("pre", failure).textContent, failure.querySelector("b")]).toEqual(["Traceback …", null]);
  expect(detailNodes(DETAILS, english)).toHaveLength(1);
});

test("the note, and what the run ran with, as text", () => {
  const provenance: RunDetails["provenance"] = [
    { title: "Code", entries: [["commit", "1a2b"]], text: "+rate = <b>2</b>" },
    {
      title: "Packages",
      entries: [
        ["keras", "3.15.1"],
        ["numpy", "2.4.6"],
      ],
      text: "",
    },
  ];
  const element = document.createElement("div");
  element.append(...detailNodes({ ...DETAILS, note: "in\nTable 2", provenance }, english));
  expect(find(".ddl-runpage-note", element).textContent).toBe("in\nTable 2");
  expect(texts("summary", element)).toEqual(["Code", "Packages (2)"]);
  expect(texts("details pre", element)).toEqual(["+rate = <b>2</b>"]);
  expect(texts("details dd", element)).toEqual(["1a2b", "3.15.1", "2.4.6"]);
});

test("sizes have a unit", () => {
  expect([1, 312, 4100, 52_300_000, 7e12].map(byteSize)).toEqual(["1 byte", "312 bytes", "4.1 kB", "52 MB", "7000 GB"]);
});
