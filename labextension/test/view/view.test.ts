// @vitest-environment jsdom
/** The view in a document without a layout. */

import "../matchmedia";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Failure, LEFT, type MonitorView, type RunState, type WorkerInfo } from "../../src/generated";
import { positive, smoothed } from "../../src/view/chart";
import { type Delta, RunModel } from "../../src/view/model";
import { RunView } from "../../src/view/view";
import { find, findAll, isShown } from "../dom";
import { begin, drawing, end, frame, resize } from "../layoutless";
import { delta, full, info, NOW, type Point, PROGRESS, RUN, STATE } from "../messages";

const BEFORE = { ...PROGRESS, fit: -1, epoch: 0, epochs: 0, step: 0, steps: null, fraction: 0, end: null };

const MONITOR: MonitorView = {
  ...{ model: "energy", log: "/srv/log", window: 60, rows: 0, wanted: 5000, requests: 1, errors: 1, late: 0 },
  ...{ doubles: 0, unreadable: 0, severe: 0.25, time: [], rate: [], p50: [], p95: [], p99: [], things: [] },
  ...{ note: "", hidden: 0, error: null, reasons: [], cell: "" },
};

let model: RunModel;
let view: RunView;
let apply: (message: Delta) => void;
let stops = 0;

const shown = (selector: string) => isShown(find(selector));

beforeEach(() => {
  begin(NOW);
  stops = 0;
  model = new RunModel();
  view = new RunView(document.body, { model, onStop: () => stops++ });
  apply = drawing(model, view);
  frame();
});

afterEach(() => {
  view.dispose();
  end();
});

test("before the first message the view waits for the kernel", () => {
  expect(find(".ddl-empty").textContent).toBe("Waiting for the kernel …");
  for (const part of [".ddl-head", ".ddl-notice", ".ddl-chart", ".ddl-table"]) expect(shown(part), part).toBe(false);
});

test("a running job", () => {
  apply(full(1, { workers: [info(0), info(1)], numbers: [{ rank: 0, cpu: 310, compute: 26 }, { rank: 1, compute: 52 }] })); // biome-ignore format: one line
  expect(find(".ddl-chip").textContent).toBe("RUNNING");
  expect(find(".ddl-title").textContent).toBe("RUNNINGdigitsall-reduce · 2 workers · hdi-prod");
  expect(find("[role=progressbar]").getAttribute("aria-valuenow")).toBe("74");
  expect(find(".ddl-status").textContent).toBe("epoch 8 of 10 · step 412 of 938 · updated 0.8 s ago");
  const cells = findAll("tbody tr").map((row) => [...row.children].map((cell) => cell.textContent));
  expect(cells[0]).toEqual(["0", "wn3", "CPU, 8 cores", "310 %", "–", "26", "–", "–"]);
  expect(cells[1]?.[5]).toBe("52 · 2.0× slower");
});

test("who has left is dimmed, and who has joined has a row and lines of its own", () => {
  const run = { ...RUN, min_workers: 2, workers: 3 };
  const rate = { points: [[1, 5], [2, 6]] as Point[] }; // biome-ignore format: points
  const workers = [0, 1, 3].map((rank) => info(rank, rank === 1 ? { state: LEFT } : {}));
  const numbers = [{ rank: 0, compute: 26, data: 0.1 }, { rank: 1, compute: 90, data: 0.9 }, { rank: 3, compute: 26, data: 0.1 }]; // biome-ignore format: one line
  apply(full(1, { run, state: { ...STATE, executors: 4 }, workers, numbers, lines: { rate, workers: { points: [[1, 3], [2, 2]] } } })); // biome-ignore format: one line
  expect(find(".ddl-title").textContent).toContain("all-reduce · 2..3 workers · hdi-prod · holds 4 executors");
  expect(findAll("tbody tr").map(({ dataset }) => dataset.left)).toEqual([undefined, "", undefined]);
  expect(findAll("tbody tr").map((row) => row.children[5]?.textContent)).toEqual(["26", "90 · left", "26"]);
  expect(find(".ddl-status").textContent).toContain("90 % computing, 10 % waiting for data");
  expect(findAll(".ddl-tabs button").map(({ textContent }) => textContent)).toEqual(["All ranks", "0", "1", "2", "3"]);
  const chart = () => find(".ddl-chart .ddl-chart");
  expect([isShown(chart()), find(".ddl-values", chart()).textContent]).toEqual([true, "2"]);
  expect(find(".ddl-charts").dataset.charts).toBe("1");
  apply(full(2, { run: RUN, lines: { rate } }));
  expect(isShown(chart())).toBe(false);
  apply(full(3, { run, state: { ...STATE, state: "FINISHED", executors: 4 } }));
  expect(find(".ddl-title").textContent).not.toContain("holds");
});

test("a parameter-server run has its own columns", () => {
  const run = { ...RUN, strategy: "ps" };
  apply(full(1, { run, workers: [info(0)], numbers: [{ rank: 0, rate: 900, staleness: 2, staleness_max: 6, commits: 40 }] })); // biome-ignore format: one line
  expect(findAll("thead th").map((cell) => cell.textContent)).toEqual([
    "rank", "host", "device", "CPU", "memory", "samples/s", "staleness", "commits",
  ]); // biome-ignore format: a row
  expect(findAll("tbody td").slice(5, 8).map((cell) => cell.textContent)).toEqual(["900", "2, max. 6", "40"]); // biome-ignore format: a row
});

test("a run that has ended shows the most memory that its ranks have used", () => {
  const state: RunState = { ...STATE, state: "FINISHED", ended: NOW };
  apply(full(1, { workers: [info(0)], numbers: [{ rank: 0, memory: 8e8, memory_peak: 9e8 }] }));
  const memory = () => [find("thead").textContent, find("tbody").textContent];
  expect(memory()).toEqual([expect.stringContaining("CPUmemory"), expect.stringContaining("0.80 GB")]);
  apply(delta(2, { state }));
  expect(memory()).toEqual([expect.stringContaining("CPUpeak memory"), expect.stringContaining("0.90 GB")]);
});

test("each heading of the table says what its numbers are", () => {
  for (const strategy of ["allreduce", "ps"]) {
    apply(full(1, { run: { ...RUN, strategy }, workers: [info(0)], numbers: [{ rank: 0, gpu: 57, data: 0.1, network: 0.1, summing: 0.1 }] })); // biome-ignore format: one line
    for (const heading of findAll("thead th")) expect(heading.title, heading.textContent ?? "").toBeTruthy();
  }
});

test("no rank has the colour of the training or of the validation", () => {
  const validation = { "metric:loss": line(0.5), "metric:val_loss": line(0.6) };
  vi.spyOn(globalThis, "getComputedStyle").mockImplementation((element) => ({ color: (element as HTMLElement).style.color }) as CSSStyleDeclaration); // biome-ignore format: one line
  apply(full(1, { run: { ...RUN, workers: 2 }, lines: { ...validation, "0:loss": line(0.4), "1:loss": line(0.6) } }));
  const colours = findAll(".ddl-chart").slice(0, 2).map((chart) => findAll(".ddl-values span", chart).map(({ style }) => style.color)); // biome-ignore format: one line
  expect(colours[0]?.filter((colour) => colours[1]?.includes(colour))).toEqual([]);
});

test("the view hides what the notebook has saved of its run", () => {
  apply(full(1));
  const rule = find("style").textContent;
  expect(rule).toContain(`:has(.ddl-run[data-run="${RUN.id}"]:not(.ddl-stored *)) .ddl-static[data-run="${RUN.id}"]`);
  apply(full(2, { run: { ...RUN, id: '"]{}*' } }));
  expect(find("style").textContent).toBe("");
});

test("a monitor has no ranks, and each heading of its table says what it has", () => {
  apply(full(1, { run: { ...RUN, strategy: "monitor", workers: 0 }, monitor: MONITOR }));
  expect(findAll(".ddl-tabs button").map(({ textContent }) => textContent)).toEqual(["Output"]);
  expect(find(".ddl-log").getAttribute("aria-label")).toBe("printed lines");
  for (const heading of findAll(".ddl-monitor thead th")) expect(heading.title, heading.textContent ?? "").toBeTruthy();
});

test("until the first step, the phases say in words what the run is about to do", () => {
  const at = (state: RunState["state"], ...workers: WorkerInfo[]) => {
    apply(full(1, { state: { ...STATE, state }, progress: BEFORE, workers }));
    const shownPhases = findAll(".ddl-phases li").map((item) => `${item.dataset.phase} ${item.textContent}`);
    return shown(".ddl-phases") ? [find(".ddl-chip").textContent, ...shownPhases] : [];
  };
  expect(at("QUEUED").slice(0, 3)).toEqual(["QUEUED", "now waiting for its turn", "later starting Spark"]);
  expect(at("PREFLIGHT").slice(0, 2)).toEqual(["STARTING", "now starting Spark"]);
  expect(find(".ddl-visually-hidden").textContent).toBe("digits: STARTING");
  expect(at("WAITING").slice(0, 3)).toEqual(["STARTING", "done starting Spark", "now starting the workers"]);
  expect(at("FAILED")).toEqual([]);
  const loading = (rank: number) => info(rank, { state: "loading TensorFlow" });
  const running = (rank: number) => info(rank, { state: "running" });
  expect(at("RUNNING").at(3)).toBe("now loading TensorFlow on 2 workers");
  expect(at("RUNNING", loading(0), info(1, { state: "starting" })).at(3)).toBe("now loading TensorFlow on 2 workers");
  expect(at("RUNNING", loading(0), running(1)).at(3)).toBe("now loading TensorFlow on 1 of 2 workers");
  expect(find(".ddl-status").textContent).toBe("loading TensorFlow on 1 of 2 workers · updated 0.8 s ago");
  expect(at("RUNNING", running(0), running(1)).slice(3)).toEqual(["done loading TensorFlow", "now building the model", "later training"]); // biome-ignore format: one line
  apply(delta(2, { progress: { ...BEFORE, fit: 0, epochs: 10 }, numbers: [{ rank: 0, cpu: 310 }] }));
  expect(find("[aria-current=step]").textContent).toBe("compiling the first step");
  apply(delta(3, { progress: { ...BEFORE, fit: 0, epochs: 10, step: 1 } }));
  expect(shown(".ddl-phases")).toBe(false);
  apply(full(1, { progress: BEFORE, latest: { score: 0.5 } }));
  expect(shown(".ddl-phases")).toBe(false);
  apply(full(1, { run: { ...RUN, strategy: "monitor" }, progress: BEFORE }));
  expect(shown(".ddl-phases")).toBe(false);
});

test("a chart is enlarged, and has a logarithmic scale and smoothed lines then", () => {
  apply(full(1, { lines: { "metric:loss": line(0.5) } }));
  const chart = find(".ddl-chart");
  const enlarge = find<HTMLButtonElement>(".ddl-enlarge");
  expect(isShown(find(".ddl-chart-tools"))).toBe(false);
  enlarge.click();
  expect([chart.dataset.large, enlarge.getAttribute("aria-pressed")]).toEqual(["", "true"]);
  const [log] = findAll<HTMLInputElement>(".ddl-chart-tools input");
  log?.click();
  expect([isShown(find(".ddl-chart-tools")), log?.checked]).toEqual([true, true]);
  enlarge.click();
  expect([chart.dataset.large, isShown(find(".ddl-chart-tools")), log?.checked]).toEqual([undefined, false, false]);
});

test("a smoothed line follows the mean of the points before, and a logarithm has no values from 0 down", () => {
  const [x, y] = [[1, 2, 3, 4], [1, null, 0, 1]]; // biome-ignore format: one line
  expect(smoothed({ x, y }).y.map((value) => value && Number(value.toFixed(3)))).toEqual([1, null, 0.444, 0.672]);
  expect(positive({ x, y }).y).toEqual([1, null, null, 1]);
});

test("a long name has a tooltip", () => {
  const host = "wn3-hdi.abcdefghijklmnop.internal.example";
  apply(full(1, { workers: [info(0, { host }), info(1)], numbers: [{ rank: 0 }, { rank: 1 }] })); // biome-ignore format: one line
  expect(findAll("tbody tr").map((row) => row.children[1]?.getAttribute("title"))).toEqual([host, null]);
});

test('if some ranks have a GPU, the others have "no GPU"', () => {
  apply(full(1, { workers: [info(0), info(1)], numbers: [{ rank: 0, gpu: 57 }, { rank: 1 }] })); // biome-ignore format: one line
  const gpus = findAll("tbody tr").map((row) => row.children[3]?.textContent);
  expect(gpus).toEqual(["57 %", "no GPU"]);
});

test("a chart of many ranks has their range in its heading, of up to six their numbers", () => {
  const gpus = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, rank) => [`gpu:${rank}`, { points: [[1, 50], [2, 60 + rank]] as Point[] }])); // biome-ignore format: one line
  const heading = () => findAll(".ddl-values").at(-1)?.textContent;
  apply(full(1, { lines: { rate: { points: [[1, 5], [2, 6]] }, ...gpus(4) } })); // biome-ignore format: one line
  expect(heading()).toBe("0123");
  apply(full(2, { lines: { rate: { points: [[1, 5], [2, 6]] }, ...gpus(12) } })); // biome-ignore format: one line
  expect(heading()).toBe("60 – 71");
});

test("Stop can be clicked once, and shows that the run is stopping", () => {
  apply(full(1));
  find<HTMLButtonElement>(".ddl-stop").click();
  apply(delta(2));
  find<HTMLButtonElement>(".ddl-stop").click();
  expect(stops).toBe(1);
  expect(find(".ddl-stop").textContent).toBe("Stopping…");
  apply(delta(3, { state: { ...STATE, state: "STOPPED", ended: NOW } }));
  expect(shown(".ddl-stop")).toBe(false);
});

test("while the kernel does not answer, Stop cannot be clicked, and the clock stands", () => {
  apply(full(1));
  expect(find(".ddl-times").textContent).toBe("2:20 elapsed · about 1:39 left");
  vi.advanceTimersByTime(61_000);
  expect(find(".ddl-stop").hasAttribute("disabled")).toBe(true);
  expect(find(".ddl-times").textContent).toBe("2:20 elapsed when last seen");
  apply(full(1, { now: NOW + 61 }));
  expect(find(".ddl-stop").hasAttribute("disabled")).toBe(false);
});

test("the next step is code that can be copied", () => {
  apply(full(1, { state: { ...STATE, state: "FINISHED", ended: NOW, next: { text: "The trained model:", code: "model = digits.model()" } } })); // biome-ignore format: one line
  expect(find(".ddl-next").textContent).toBe("The trained model: model = digits.model() Copy");
  apply(delta(2, { state: { ...STATE, state: "FINISHED", ended: NOW } }));
  expect(shown(".ddl-next")).toBe(false);
});

test("while a cell waits, the view refers to the notebook's stop button", () => {
  apply(full(1, { run: { ...RUN, waiting: true } }));
  expect(shown(".ddl-stop")).toBe(false);
  expect(find(".ddl-hint").textContent).toContain("the notebook's stop button");
});

test("a file that is being fetched is shown, also after the end of the run", () => {
  const state: RunState = { ...STATE, state: "FINISHED", message: "all workers finished", ended: NOW };
  apply(full(1, { state: { ...state, fetching: "model-0.keras: 12 of 64 MB" } }));
  expect(shown(".ddl-message")).toBe(true);
  expect(find(".ddl-message").textContent).toBe("model-0.keras: 12 of 64 MB");
  apply(delta(2, { state }));
  expect(shown(".ddl-message")).toBe(false);
});

test("a failure has rank, host and cause, and a folded traceback", () => {
  const failure: Failure = { rank: 1, host: "wn4", kind: "error", message: "ValueError: no", traceback: "Traceback …" };
  apply(
    full(1, { state: { ...STATE, state: "FAILED", message: "x", ended: NOW, failure }, workers: [info(0), info(1)] }),
  );
  expect(find("[role=alert] p").textContent).toBe("Rank 1 on wn4 raised an exception: ValueError: no");
  expect(find("details").textContent).toBe("TracebackTraceback …");
  expect(find<HTMLDetailsElement>("details").open).toBe(false);
  expect(findAll("tbody tr").map((row) => row.children[5]?.textContent)).toEqual(["–", "failed"]);
});

test("texts of a run never become markup", () => {
  const evil = "<img src=x onerror=alert(1)>";
  apply(
    full(1, {
      run: { ...RUN, name: evil, cluster: evil },
      state: { ...STATE, state: "LOST", message: evil, failure: null },
      workers: [info(0, { host: evil, device: evil, message: evil })],
      logs: [[0, "out", evil]],
    }),
  );
  expect(findAll("img")).toEqual([]);
  expect(find(".ddl-log").textContent).toBe(`0${evil}`);
});

test("the tabs of the log are one Tab stop, arrows move, and a tab shows the lines of its rank", () => {
  apply(full(1, { logs: [[0, "out", "from 0"], [1, "err", "from 1"], [-1, "warning", "slow"]] })); // biome-ignore format: lines
  const tabs = findAll("[role=tab]");
  expect(tabs.map((tab) => tab.textContent)).toEqual(["All ranks", "0", "1"]);
  expect(tabs.map((tab) => tab.tabIndex)).toEqual([0, -1, -1]);
  expect(findAll(".ddl-log > div").map((row) => row.textContent)).toEqual(["0from 0", "1from 1", "·⚠ slow"]);
  tabs[0]?.focus();
  tabs[0]?.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
  expect(document.activeElement).toBe(tabs[2]);
  tabs[2]?.click();
  expect(tabs[2]?.getAttribute("aria-selected")).toBe("true");
  expect(find(".ddl-log").textContent).toBe("from 1");
  apply(delta(2, { logs: [[1, "out", "more"], [0, "out", "elsewhere"]] })); // biome-ignore format: lines
  expect(findAll(".ddl-log > div").map((row) => row.textContent)).toEqual(["from 1", "more"]);
});

test("what is printed replaces the remark that nothing was", () => {
  apply(full(1));
  expect(find(".ddl-log").textContent).toBe("nothing printed yet");
  apply(delta(2, { logs: [[0, "out", "hello"]] }));
  expect(find(".ddl-log").textContent).toBe("0hello");
  apply(delta(3, { state: { ...STATE, state: "FINISHED", ended: NOW } }));
  expect(find(".ddl-log").textContent).toBe("0hello");
  apply(full(4));
  apply(delta(5, { state: { ...STATE, state: "FINISHED", ended: NOW } }));
  expect(find(".ddl-log").textContent).toBe("nothing was printed");
});

test("a view that was drawn outside of the document has its colours and the end of its log once it is in it", () => {
  vi.spyOn(globalThis, "getComputedStyle").mockImplementation((element) => {
    return { color: element.isConnected ? "rgb(1, 2, 3)" : "" } as CSSStyleDeclaration;
  });
  vi.spyOn(Element.prototype, "scrollHeight", "get").mockReturnValue(700);
  const far = document.createElement("div");
  const hidden = new RunView(far, { model, onStop: () => {} });
  drawing(
    model,
    hidden,
  )(full(1, { latest: { loss: 0.5 }, lines: { "metric:loss": line(0.5) }, logs: [[0, "out", "x"]] }));
  find(".ddl-log", far).scrollTop = 0;
  const value = () => find(".ddl-values span", far).style.color;
  expect(value()).toBe("");
  document.body.append(far);
  resize();
  frame();
  expect(value()).toBe("rgb(1, 2, 3)");
  expect(find(".ddl-log", far).scrollTop).toBe(700);
  hidden.dispose();
});

test("many ranks have a tile each, and slow or selected ones a row", () => {
  const ranks = Array.from({ length: 64 }, (_, rank) => rank);
  const numbers = ranks.map((rank) => ({ rank, compute: rank === 11 ? 50 : 25 }));
  apply(full(1, { run: { ...RUN, workers: 64 }, workers: ranks.map((rank) => info(rank)), numbers }));
  const tiles = findAll(".ddl-tiles button");
  expect(tiles.length).toBe(64);
  expect(tiles[11]?.textContent).toBe("11 · 2.0×");
  expect(tiles[11]?.getAttribute("aria-label")).toBe("rank 11, 2.0× slower");
  expect(tiles[11]?.dataset.heat).toBe("bad");
  expect(findAll("tbody tr").length).toBe(1);
  tiles[3]?.click();
  frame();
  expect(findAll("tbody tr").map((row) => row.firstElementChild?.textContent)).toEqual(["3", "11"]);
  expect(tiles[3]?.getAttribute("aria-pressed")).toBe("true");
  expect(find<HTMLSelectElement>(".ddl-logbar select").value).toBe("3");
  expect(findAll(".ddl-logbar [role=tab]").length).toBe(0);
});

test("every control has an accessible name", () => {
  apply(full(1, { workers: [info(0)], logs: [[0, "out", "x"]], lines: { "metric:loss": { points: [[1, 1]] } } }));
  const controls = findAll("button, select, [role=img], [role=progressbar], [tabindex='0']");
  const visible = controls.filter(isShown);
  expect(visible.length).toBeGreaterThan(6);
  for (const control of visible) {
    expect(control.getAttribute("aria-label") || control.textContent, control.outerHTML).toBeTruthy();
  }
});

const line = (y: number) => ({ points: [[1, y], [2, y]] as Point[] }); // biome-ignore format: a line
const BAND = { "low:loss": line(0.25), "median:loss": line(0.5), "high:loss": line(0.75) };

test("the ranks' own values of a metric are a band behind the job's, and lines on demand", () => {
  const ranks = { "0:loss": line(0.25), "1:loss": line(0.75) };
  const workers = { workers: [info(0), info(1)], numbers: [{ rank: 0 }, { rank: 1 }] };
  apply(full(1, { ...workers, latest: { loss: 0.5 }, lines: { "metric:loss": line(0.5), ...BAND, ...ranks } }));
  const [loss, second] = findAll(".ddl-chart");
  expect(loss?.querySelector(".ddl-values")?.textContent).toBe("0.500");
  expect(loss?.querySelector(".ddl-values")?.getAttribute("title")).toContain("the lowest, the median and the highest");
  const select = second?.querySelector("select");
  expect([...(select?.options ?? [])].map((option) => option.textContent)).toEqual(["loss by rank"]);
  expect(second?.querySelector(".ddl-values")?.textContent).toBe("0: 0.2501: 0.750");
});

test("with many ranks, a metric by rank is the lowest, the median and the highest", () => {
  apply(full(1, { lines: { "metric:loss": line(0.5), ...BAND } }));
  const second = findAll(".ddl-chart")[1];
  expect(second?.querySelector(".ddl-values")?.textContent).toBe("0.2500.5000.750");
  expect(second?.querySelector("[role=img]")?.getAttribute("aria-label")).toBe(
    "loss of the ranks: lowest, median, highest over the epochs",
  );
});
