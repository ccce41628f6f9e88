import { expect, test } from "vitest";
import { age, duration, gigabytes, gigabytesOf, number, percent, plural, tick } from "../../src/view/format";

test.each([
  [0.13, "0.130"],
  [0.0001234, "0.000123"],
  [0.00001234, "1.2e-5"],
  [26.14, "26.1"],
  [5420.3, "5,420"],
  [938, "938"],
  [3e12, "3.0e12"],
  [-0.5, "-0.500"],
  [0, "0"],
  [Number.NaN, "–"],
  [null, "–"],
  [undefined, "–"],
])("number(%s) is %s", (value, words) => expect(number(value)).toBe(words));

test.each([
  [0, "0:00"],
  [7.4, "0:07"],
  [133, "2:13"],
  [3733, "1:02:13"],
  [-3, "0:00"],
])("duration(%s) is %s", (value, words) => expect(duration(value)).toBe(words));

test.each([
  [0.84, "0.8 s"],
  [-1, "0.0 s"],
  [12.4, "12 s"],
  [89, "89 s"],
  [300, "5 min"],
  [7200, "2 h"],
])("age(%s) is %s", (value, words) => expect(age(value)).toBe(words));

test.each([
  [0, "0"],
  [0.5, "0.5"],
  [5000, "5,000"],
  [10000, "10k"],
  [1_500_000, "1.5M"],
  [0.0002, "2e-4"],
])("tick(%s) is %s", (value, words) => expect(tick(value)).toBe(words));

test("an unknown value is a dash", () => {
  expect(percent(Number.NaN)).toBe("–");
  expect(gigabytes(Number.NaN)).toBe("–");
  expect(gigabytesOf(Number.NaN, 16e9)).toBe("–");
});

test("sizes and counts", () => {
  expect(percent(57.4)).toBe("57 %");
  expect(gigabytesOf(5.1e9, 16e9)).toBe("5.1 / 16 GB");
  expect(gigabytes(2.5e8)).toBe("0.25 GB");
  expect(plural(1, "worker")).toBe("1 worker");
  expect(plural(64, "worker")).toBe("64 workers");
});
