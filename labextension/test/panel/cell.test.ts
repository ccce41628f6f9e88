import { expect, test } from "vitest";
import { cellSource, contentsPaths, findCell } from "../../src/lab/cell";

const SPEC = {
  run: "20261121-1",
  name: "digits",
  cell: "model.fit(x, y)",
  strategy: "ps",
  workers: 2,
  rule: "adag",
  data: null,
  features: ["a", "b"],
  label: "the label",
  batch_size: 64,
  validation: 0.2,
  checkpoints: "/somewhere",
  resume_uri: "hdfs:///checkpoints",
  spare: false,
  sync_batchnorm: true,
  conf: { "spark.executor.memory": "2g", "my.password": "***" },
};

test("a cell is copied with its options, and without what is secret or no option", () => {
  expect(cellSource(SPEC)).toBe(
    "%%distributed --name digits --strategy ps --workers 2 --rule adag --features a,b --label 'the label' " +
      "--batch-size 64 --validation 0.2 --no-spare --sync-batchnorm --conf spark.executor.memory=2g\nmodel.fit(x, y)",
  );
});

test("a cell is found by its source, or else by its name", () => {
  const sources = ["import x", "%%distributed --name other\nmodel.fit(x, y)", "%%distributed --name digits\nold"];
  expect(findCell(sources, SPEC)).toBe(1);
  expect(findCell(sources, { ...SPEC, cell: "changed since" })).toBe(2);
  expect(findCell(["model.fit(x, y)"], SPEC)).toBe(-1);
});

test("a notebook is looked for below the server's root first", () => {
  expect(contentsPaths("/home/me/work/deep/a.ipynb", "~/work")).toEqual([
    "deep/a.ipynb",
    "home/me/work/deep/a.ipynb",
    "me/work/deep/a.ipynb",
    "work/deep/a.ipynb",
    "a.ipynb",
  ]);
  expect(contentsPaths("a.ipynb", "")).toEqual(["a.ipynb"]);
});
