import { expect, test } from "vitest";
import { cellSource, contentsPaths, findCell, optionsOf } from "../src/cell";

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
  prewarm: false,
  sync_batchnorm: true,
  set: { lr: "0.01", act: "leaky relu" },
  conf: { "spark.executor.memory": "2g", "my.password": "***" },
};

test("the source of a cell has its options, without masked values and fields that are no options", () => {
  expect(cellSource(SPEC)).toBe(
    "%%distributed --name digits --strategy ps --workers 2 --rule adag --features a,b --label 'the label' " +
      "--batch-size 64 --validation 0.2 --no-prewarm --sync-batchnorm --set lr=0.01 --set 'act=leaky relu' " +
      "--conf spark.executor.memory=2g\nmodel.fit(x, y)",
  );
});

test("the number of workers may be a range", () => {
  expect(optionsOf({ workers: 4, min_workers: 2 })).toEqual([["--workers", "2..4"]]);
  expect(cellSource({ workers: 4, min_workers: null, cell: "" })).toBe("%%distributed --workers 4\n");
});

test("a cell is found by its source, else by its name", () => {
  const sources = ["import x", "%%distributed --name other\nmodel.fit(x, y)", "%%distributed --name digits\nold"];
  expect(findCell(sources, SPEC)).toBe(1);
  expect(findCell(sources, { ...SPEC, cell: "changed since" })).toBe(2);
  expect(findCell(["model.fit(x, y)"], SPEC)).toBe(-1);
});

test("the path below the server's root is the likeliest", () => {
  expect(contentsPaths("/home/me/work/deep/a.ipynb", "~/work")).toEqual([
    "deep/a.ipynb",
    "home/me/work/deep/a.ipynb",
    "me/work/deep/a.ipynb",
    "work/deep/a.ipynb",
    "a.ipynb",
  ]);
  expect(contentsPaths("a.ipynb", "")).toEqual(["a.ipynb"]);
});
