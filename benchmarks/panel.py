"""The panel: how fast it shows 1,000 runs, a run of 10^6 steps by 256 workers and a search of 1,000 trials.

    python -m benchmarks.panel [--quick] [--part runs|search]...

A real JupyterLab in headless Chromium. A time begins with the command that a click gives and ends when the frame that
shows its effect has been rendered. While a page loads there is no command, so the list has two times: from its request,
which the page makes before JupyterLab has laid out its panels, and from the first frame that has the panel in it, with
rows or without. "Cold" is with a server that has just been started and an empty cache of the browser. Sizes are those
on the wire, compressed and with headers, of the routes and scripts of ddl_magics.

The trials of the search are made up, nine or three epochs each, and all have a run in the store. It goes on while it is
watched: two trials train, and one ends in each tick.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser.lab import CHROMIUM, Lab, chromium
from browser.panel_page import PanelPage
from playwright.sync_api import Browser, Page
from support.invented_search import StoredSearch

from .harness import command, report
from .harness.panel_store import STEPS, WORKERS, LongRun, short_runs

LIST_SECONDS, RUN_SECONDS, OPEN_BYTES, TICK_BYTES = 0.3, 1.0, 500_000, 20_000
RUNS = TRIALS = 1000
#: What a person takes for immediate.
ACT_SECONDS = 0.1
#: The interval in which the panel fetches its list.
TICK_SECONDS = 2.0
WORKSPACE = "lab/workspaces/benchmark"
WORKSPACES = "**/api/workspaces/**"

#: A message that is posted in a frame arrives when the frame has been rendered. Changes of the workspace are not saved,
#: so that no tab comes back; Playwright's routes would do the same but turn the browser's cache off.
_SCRIPT = """
const ask = window.fetch;
window.fetch = (request, init) => request.method !== "GET" && /api[/]workspaces/.test(request.url)
  ? Promise.resolve(new Response(null, { status: 204 })) : ask(request, init);
performance.setResourceTimingBufferSize(100000);
const painted = (ready) => new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error(`not on the screen after 10 minutes: ${ready}`)), 600_000);
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => resolve(performance.now());
  const look = () => ready() ? port2.postMessage(null) : requestAnimationFrame(look);
  requestAnimationFrame(look);
});
const rows = () => [...document.querySelectorAll(".ddl-panel .ddl-row")].filter((row) => row.offsetHeight);
const loss = () => document.querySelector(".ddl-run")?.model.line("metric:loss")?.x;
const panel = () => document.querySelector(".ddl-panel")?.offsetHeight;
const charts = () => [...document.querySelectorAll(".ddl-run canvas")].some((canvas) => canvas.offsetHeight);
const blocked = [];
new PerformanceObserver((list) => blocked.push(...list.getEntries())).observe({ type: "longtask" });
window.bench = {
  rows,
  framed: painted(panel),
  listed: painted(() => rows().length),
  listing: (runs) => painted(() => rows()[0]?.ariaSetSize >= runs),
  async after(act, ready) {
    const began = performance.now();
    act();
    return (await painted(ready) - began) / 1000;
  },
  run: (command, args) => void window.jupyterapp.commands.execute(`ddl-magics:${command}`, args),
  trials: () => document.querySelectorAll(".ddl-search tbody tr").length,
  title: () => document.querySelector(".ddl-search .ddl-title")?.textContent ?? "",
  sorted: () => document.querySelector(".ddl-search th[aria-sort]")?.textContent,
  axis: () => document.querySelector(".ddl-search .ddl-handle"),
  chosen: () => document.querySelector(".ddl-parallel h3 + *")?.textContent.endsWith("trials chosen"),
  press: (key) => bench.axis().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })),
  drawn: () => charts() && loss()?.length > 0,
  whole: (step) => painted(() => loss()?.at(-1) >= step),
  asked: () => performance.getEntriesByType("resource").filter(({ name }) => /ddl[-_]magics/.test(name)),
  bytes: (since) => bench.asked().filter((entry) => entry.responseEnd >= since)
    .reduce((sum, entry) => sum + entry.transferSize, 0),
  blocked: (since) => Math.max(0, ...blocked.filter(({ startTime }) => startTime >= since)
    .map(({ duration }) => duration)) / 1000,
};
"""

Samples = dict[str, list[float]]


class Screen:
    """A page in a browser context of its own; adds what it measures to `samples`, by name, in seconds or kB."""

    def __init__(self, lab: Lab, browser: Browser, samples: Samples) -> None:
        self.page: Page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        self.page.add_init_script(_SCRIPT)
        self._panel, self._samples = PanelPage(lab, self.page), samples

    def load(self, how: str, rows: int = RUNS) -> None:
        """Load the page with its panel open, and wait until the list has so many rows."""
        self.page.goto(f"{self._panel.lab.url}{WORKSPACE}?token={self._panel.lab.token}")
        first = "bench.asked().find(({ name }) => /runs[?]/.test(name)).startTime"
        self._note(f"list, from its request, {how}", self._measure(f"(await bench.listed - {first}) / 1000"))
        self._note(f"list, from its frame, {how}", self._measure("(await bench.listed - await bench.framed) / 1000"))
        self._note(f"list, all rows, {how}", self._measure(f"(await bench.listing({rows}) - {first}) / 1000"))
        self._panel.ready()
        self._idle()

    def use_list(self) -> None:
        """Show the panel, scroll to its end, search a run."""
        self._measure("window.jupyterapp.shell.collapseLeft()")
        self._idle()
        self._act("list, panel shown", "bench.run('show-panel')", "bench.rows().length")
        bottom = "document.querySelector('.ddl-list').parentElement"
        self._act("list, scrolled", f"{bottom}.scrollTop = 1e6", f"bench.rows().at(-1)?.ariaPosInSet > {RUNS - 10}")
        field = "document.querySelector('.ddl-panel input[type=search]')"
        event = "dispatchEvent(new Event('input', { bubbles: true }))"
        self._act("list, searched", f"{{ {field}.value = 'run7'; {field}.{event} }}", _only("run7"))
        self._act("list, search cleared", f"{{ {field}.value = ''; {field}.{event} }}", f"!({_only('run7')})")

    def open(self, run: LongRun, how: str) -> None:
        """Open the tab of the run, and wait until all of it is there."""
        since = self._measure("performance.now()")
        self._act(f"run, {how}", f"bench.run('open-run', {{ run: '{run.name}' }})", "bench.drawn()")
        self._note(f"run, whole, {how}", (self._measure(f"await bench.whole({run.step})") - since) / 1000)
        self._idle()
        self._note_load(since, "run", f", {how}")

    def close_run(self) -> None:
        """Close the current tab."""
        self._measure("window.jupyterapp.shell.currentWidget.close()")
        self._idle()

    def watch(self, run: LongRun, ticks: int) -> None:
        """Follow the run, beside the list. RuntimeError if the page does not show its new steps."""
        for _ in range(ticks):
            since = self._measure("performance.now()")
            run.grow(TICK_SECONDS)
            time.sleep(TICK_SECONDS)
            self._note_load(since, "tick")
            if self._measure(f"(document.querySelector('.ddl-run').model.line('metric:loss').x.at(-1) < {STEPS})"):
                raise RuntimeError("the page does not follow the run")

    def use_search(self, search: StoredSearch, how: str) -> None:
        """Unfold the search's row, open its tab, sort its trials, choose some along an axis."""
        fold = "document.querySelector('.ddl-panel .ddl-row-fold').click()"
        self._act(f"search, row unfolded, {how}", fold, f"bench.rows()[1]?.ariaSetSize >= {TRIALS}")
        since = self._measure("performance.now()")
        opened = f"bench.run('open-search', {{ search: '{search.id}' }})"
        self._act(f"search, opened, {how}", opened, f"bench.trials() && bench.title().includes('{TRIALS} of')")
        self._idle()
        self._note_load(since, "search", f", {how}")
        for number in (3, 4, 5):
            button = f"[...document.querySelectorAll('.ddl-search .ddl-sort')][{number}]"
            self._act("search, sorted", f"{button}.click()", f"bench.sorted() === {button}.textContent")
        for _ in range(3):
            self._act("search, some chosen", "bench.press('ArrowUp')", "bench.chosen()")
        self._act("search, all chosen", "bench.press('Escape')", "!bench.chosen()")

    def watch_search(self, search: StoredSearch, ticks: int) -> None:
        """Follow the search while a trial ends in each tick. RuntimeError if the page does not show it."""
        for ended in range(TRIALS + 1, TRIALS + 1 + ticks):
            since = self._measure("performance.now()")
            search.show(ended, training=2)
            time.sleep(TICK_SECONDS)
            self._note_load(since, "search, tick")
            if f"{ended} of" not in self._measure("bench.title()"):
                raise RuntimeError("the page does not follow the search")

    def end(self) -> None:
        """Close the page. RuntimeError if ddl_magics raised an error in it."""
        self.page.context.close()
        if self._panel.errors:
            raise RuntimeError(f"the page failed: {self._panel.errors}")

    def _act(self, name: str, act: str, ready: str) -> None:
        self._note(name, self._measure(f"await bench.after(() => {act}, () => {ready})"))

    def _measure(self, expression: str) -> Any:
        return self.page.evaluate(f"async () => {expression}")

    def _note(self, name: str, value: float) -> None:
        self._samples[name].append(value)

    def _note_load(self, since: float, what: str, how: str = "") -> None:
        """What was fetched since a moment of the page, and its longest task."""
        self._note(f"{what}, fetched{how}, kB", self._measure(f"bench.bytes({since})") / 1000)
        self._note(f"{what}, longest task{how}", self._measure(f"bench.blocked({since})"))

    def _idle(self) -> None:
        """Wait until what was begun has ended, so that it is not measured with what follows."""
        time.sleep(1)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("panel", __doc__, "fewer starts, and larger buckets of events")
    parser.add_argument("--part", action="append", choices=("runs", "search"))
    options = parser.parse_args(arguments)
    if not Path(CHROMIUM).exists():
        raise SystemExit(f"panel: {CHROMIUM} is missing: run `apt-get install chromium`, or set CHROMIUM")
    before = report.machine()
    print(f"machine: {before}")
    parts = options.part or ["runs", "search"]
    samples: Samples = defaultdict(list)
    with chromium() as browser:
        size = _measure_runs(browser, samples, options.quick) if "runs" in parts else 0
        if "search" in parts:
            _measure_search(browser, samples, options.quick)
    _show(samples, size, before)


def _measure_runs(browser: Browser, samples: Samples, quick: bool) -> int:
    """The list of 1,000 runs and the long one; the bytes of its events."""
    bucket, starts, times, ticks = (10_000, 2, 2, 3) if quick else (100, 5, 4, 15)
    with _lab(browser) as lab:
        short_runs(RUNS)
        run = LongRun(bucket)
        for start in range(starts):
            lab.stop()
            lab.start()
            _look(Screen(lab, browser, samples), run, times, 0 if start < starts - 1 else ticks)
    print(f"{RUNS} runs of 10 epochs; one of {STEPS} steps by {WORKERS} workers, {run.bytes / 1e6:.0f} MB of events")
    return run.bytes


def _measure_search(browser: Browser, samples: Samples, quick: bool) -> None:
    """A search of 1,000 trials."""
    starts, times, ticks = (1, 1, 3) if quick else (2, 3, 8)
    with _lab(browser) as lab:
        search = StoredSearch(TRIALS, training=2, planned=TRIALS + 2 + ticks, runs=TRIALS + 2 + ticks)
        for start in range(starts):
            lab.stop()
            lab.start()
            for number in range(times):
                screen = Screen(lab, browser, samples)
                screen.load("with a search", rows=1)
                screen.use_search(search, "again" if number else "cold")
                if (start, number) == (starts - 1, times - 1):
                    screen.watch_search(search, ticks)
                screen.end()
    print(f"a search of {TRIALS} trials")


@contextmanager
def _lab(browser: Browser) -> Iterator[Lab]:
    """A JupyterLab with an empty store, and a workspace in which the panel is open."""
    with tempfile.TemporaryDirectory(prefix="panel-") as name:
        os.environ["JUPYTER_DATA_DIR"] = str(Path(name) / "data")
        (Path(name) / "lab").mkdir()
        lab = Lab(Path(name) / "lab")
        try:
            _arrange(lab, browser)
            yield lab
        finally:
            lab.stop()


def _arrange(lab: Lab, browser: Browser) -> None:
    """Save a workspace in which the panel is open, for the pages that follow."""
    page = browser.new_context().new_page()
    panel = PanelPage(lab, page)
    panel.open(WORKSPACE)
    with page.expect_response(WORKSPACES):
        panel.command("application:toggle-side-tabbar", side="right")
    page.context.close()


def _look(screen: Screen, run: LongRun, times: int, ticks: int) -> None:
    """Measure with a server that has just been started, then `times` again."""
    screen.load("cold")
    screen.open(run, "cold")
    for _ in range(times):
        screen.load("again")
        screen.use_list()
        screen.open(run, "again")
        screen.close_run()
    screen.open(run, "again")
    screen.watch(run, ticks)
    screen.end()


def _show(samples: Samples, events_bytes: int, before: str) -> None:
    sizes = {name: values for name, values in samples.items() if name.endswith("kB")}
    times = {name: [1000 * value for value in values] for name, values in samples.items() if name not in sizes}
    print("\n" + report.spread(times, "ms"), "\n")
    print(report.spread({name.removesuffix(", kB"): values for name, values in sizes.items()}, "kB"), "\n")
    bounds = {
        "list, from its request, cold": LIST_SECONDS,
        "list, from its request, again": LIST_SECONDS,
        "list, from its frame, cold": LIST_SECONDS,
        "list, from its frame, again": LIST_SECONDS,
        "list, panel shown": LIST_SECONDS,
        "run, cold": RUN_SECONDS,
        "run, again": RUN_SECONDS,
        "search, opened, cold": RUN_SECONDS,
        "search, sorted": ACT_SECONDS,
        "search, some chosen": ACT_SECONDS,
        "search, tick, longest task": ACT_SECONDS,
    }
    largest = {
        "run, fetched, cold, kB": OPEN_BYTES,
        "tick, fetched, kB": TICK_BYTES,
        "search, fetched, cold, kB": OPEN_BYTES,
        "search, tick, fetched, kB": TICK_BYTES,
    }
    goals = [
        report.at_most(f"{name}, median, s", report.quantile(samples[name], 0.5), goal)
        for name, goal in bounds.items()
        if name in samples
    ]
    goals += [
        report.at_most(f"{name.removesuffix(', kB')}, largest, kB", max(samples[name]), goal / 1000)
        for name, goal in largest.items()
        if name in samples
    ]
    report.finish(samples, goals, machine_before=before, events_bytes=events_bytes)


def _only(word: str) -> str:
    """JavaScript: every row has the word in its name."""
    return f"bench.rows().every((row) => row.querySelector('.ddl-row-name').textContent.includes('{word}'))"


if __name__ == "__main__":
    main()
