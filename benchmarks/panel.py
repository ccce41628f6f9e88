"""The panel: how fast it shows 1,000 runs and a run of 10^6 steps by 256 workers, and how much it fetches.

    python -m benchmarks.panel [--quick]

A real JupyterLab in headless Chromium. A time begins with the command that a click gives and ends when the frame that
shows its effect has been rendered. While a page loads there is no command, so the list has two times: from its request,
which the page makes before JupyterLab has laid out its panels, and from the first frame that has the panel in it, with
rows or without. "Cold" is with a server that has just been started and an empty cache of the browser. Sizes are those
on the wire, compressed and with headers, of the routes and scripts of ddl_magics.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from browser.lab import CHROMIUM, Lab, chromium
from browser.panel_page import PanelPage
from playwright.sync_api import Browser, Page

from .harness import command, report
from .harness.panel_store import STEPS, WORKERS, LongRun, short_runs

LIST_SECONDS, RUN_SECONDS, OPEN_BYTES, TICK_BYTES = 0.3, 1.0, 500_000, 20_000
RUNS = 1000
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

    def load(self, how: str) -> None:
        """Load the page with its panel open, and wait until all runs are in the list."""
        self.page.goto(f"{self._panel.lab.url}{WORKSPACE}?token={self._panel.lab.token}")
        first = "bench.asked().find(({ name }) => /runs[?]/.test(name)).startTime"
        self._note(f"list, from its request, {how}", self._measure(f"(await bench.listed - {first}) / 1000"))
        self._note(f"list, from its frame, {how}", self._measure("(await bench.listed - await bench.framed) / 1000"))
        self._note(f"list, all rows, {how}", self._measure(f"(await bench.listing({RUNS}) - {first}) / 1000"))
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
        self._note(f"run, fetched, {how}, kB", self._measure(f"bench.bytes({since})") / 1000)
        self._note(f"run, longest task, {how}", self._measure(f"bench.blocked({since})"))

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
            self._note("tick, fetched, kB", self._measure(f"bench.bytes({since})") / 1000)
            self._note("tick, longest task", self._measure(f"bench.blocked({since})"))
            if self._measure(f"(document.querySelector('.ddl-run').model.line('metric:loss').x.at(-1) < {STEPS})"):
                raise RuntimeError("the page does not follow the run")

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

    def _idle(self) -> None:
        """Wait until what was begun has ended, so that it is not measured with what follows."""
        time.sleep(1)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    quick = command.parser("panel", __doc__, "fewer starts, and larger buckets of events").parse_args(arguments).quick
    if not Path(CHROMIUM).exists():
        raise SystemExit(f"panel: {CHROMIUM} is missing: run `apt-get install chromium`, or set CHROMIUM")
    before = report.machine()
    samples: Samples = defaultdict(list)
    bucket, starts, times, ticks = (10_000, 2, 2, 3) if quick else (100, 5, 4, 15)
    with tempfile.TemporaryDirectory(prefix="panel-") as name, chromium() as browser:
        os.environ["JUPYTER_DATA_DIR"] = str(Path(name) / "data")
        (Path(name) / "lab").mkdir()
        short_runs(RUNS)
        long_run = LongRun(bucket)
        lab = Lab(Path(name) / "lab")
        try:
            _arrange(lab, browser)
            for start in range(starts):
                lab.stop()
                lab.start()
                _look(Screen(lab, browser, samples), long_run, times, 0 if start < starts - 1 else ticks)
        finally:
            lab.stop()
    _show(samples, long_run, before)


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


def _show(samples: Samples, run: LongRun, before: str) -> None:
    print(f"machine: {before}")
    print(f"{RUNS} runs of 10 epochs; one of {STEPS} steps by {WORKERS} workers, {run.bytes / 1e6:.0f} MB of events\n")
    sizes = {name: values for name, values in samples.items() if name.endswith("kB")}
    times = {name: [1000 * value for value in values] for name, values in samples.items() if name not in sizes}
    print(report.spread(times, "ms"), "\n")
    print(report.spread({name.removesuffix(", kB"): values for name, values in sizes.items()}, "kB"), "\n")
    goals = [
        *(
            report.at_most(f"{name}, median, s", report.quantile(samples[name], 0.5), LIST_SECONDS)
            for name in (
                "list, from its request, cold",
                "list, from its request, again",
                "list, from its frame, cold",
                "list, from its frame, again",
                "list, panel shown",
            )
        ),
        *(
            report.at_most(f"run, {how}, median, s", report.quantile(samples[f"run, {how}"], 0.5), RUN_SECONDS)
            for how in ("cold", "again")
        ),
        report.at_most("largest opening, kB", max(samples["run, fetched, cold, kB"]), OPEN_BYTES / 1000),
        report.at_most("largest tick, kB", max(samples["tick, fetched, kB"]), TICK_BYTES / 1000),
    ]
    report.finish(samples, goals, machine_before=before, events_bytes=run.bytes)


def _only(word: str) -> str:
    """JavaScript: every row has the word in its name."""
    return f"bench.rows().every((row) => row.querySelector('.ddl-row-name').textContent.includes('{word}'))"


if __name__ == "__main__":
    main()
