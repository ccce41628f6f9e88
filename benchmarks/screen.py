"""When a run's steps come to the screen: a kernel without TensorFlow and Spark, its live view in a real JupyterLab."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sparkmagic_kernels
from browser.lab import CHROMIUM, Lab, NotebookPage, chromium
from playwright.sync_api import expect

START_SECONDS = 200

#: After the view has drawn, the mutations of its text are told in the same frame; the message arrives when the frame
#: has been rendered.
_WATCH = """view => {
  const seen = window.seen = [], after = new MessageChannel();
  let step = -1;
  after.port1.onmessage = ({ data }) => seen.push([data, Date.now() / 1000]);
  new MutationObserver(() => {
    const lines = ["metric:loss", "epochs:loss"].map((key) => view.model.line(key)?.x.at(-1) ?? -1);
    const newest = Math.max(...lines);
    if (newest === step) return;
    step = newest;
    after.port2.postMessage(step);
  }).observe(view, { subtree: true, childList: true, characterData: true, attributes: true });
}"""


class Watched(NamedTuple):
    """A run as it was seen.

    Attributes:
        drawn: (steps, time): from this time on the chart of the loss reaches so many steps of the run.
        ended: when rank 0 ended each step.
        events: what the kernel stored of the run.
    """

    drawn: list[tuple[int, float]]
    ended: list[float]
    events: list[dict]


class Notebook:
    """Runs one cell at a time in a page of its own."""

    def __init__(self, lab: Lab, page: NotebookPage) -> None:
        self._lab, self._page = lab, page

    def watch(self, url: str, cell: str, seconds: float) -> Watched:
        """Run a training cell, named `live`, on a new session of the Livy at `url`, and watch it to its end."""
        page, before = self._page, set(_runs())
        page.open(self._lab.write("live.ipynb", "%load_ext ddl_magics", f"%ddl use livy {url}", cell, "live.wait()"))
        self._run(0, 60)
        self._run(1, START_SECONDS)
        page.run_cell(2)
        page.page.wait_for_selector(".ddl-run", timeout=START_SECONDS * 1000)
        page.view.evaluate(_WATCH)
        self._run(3, START_SECONDS + seconds * 3)
        drawn = [(int(step), at) for step, at in page.page.evaluate("window.seen") if step >= 0]
        (folder,) = set(_runs()) - before
        cluster = json.loads((folder / "run.json").read_text())["cluster"]
        if not cluster.startswith("Livy session"):
            raise RuntimeError(f"the training ran on {cluster}: {page.output(1).all_text_contents()}")
        page.shut_down()
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        last = next(event for event in reversed(events) if event["kind"] == "state")
        if last["state"] != "FINISHED":
            raise RuntimeError(f"the training is {last['state']}: {last['message']} {last.get('failure')}")
        return Watched(drawn, np.load(folder / "files" / "result.npy").tolist(), events)

    def _run(self, index: int, seconds: float) -> None:
        self._page.run_cell(index)
        self._ended(index, seconds)

    def _ended(self, index: int, seconds: float) -> None:
        expect(self._page.prompt(index)).to_have_text(re.compile(r"\[\d+\]"), timeout=seconds * 1000)


def missing() -> str:
    """What is not there, in a line; empty when all is."""
    if not Path(CHROMIUM).exists():
        return f"{CHROMIUM} is missing: apt-get install chromium, or set CHROMIUM"
    if not sparkmagic_kernels.PYTHON.exists():
        return ".venv-notebook is missing: run `make livy-env`"
    return ""


@contextmanager
def notebook(folder: Path, url: str) -> Iterator[Notebook]:
    """JupyterLab in `folder`, whose Python kernel is .venv-notebook's, and Chromium. Runs go to JUPYTER_DATA_DIR."""
    # Only this path comes before the kernels of JupyterLab's own environment.
    os.environ["JUPYTER_PATH"] = str(folder / "jupyter")
    kernel = folder / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    environment = sparkmagic_kernels.configuration(folder / "sparkmagic", url)
    command = [str(sparkmagic_kernels.PYTHON), "-m", sparkmagic_kernels.IPYTHON_KERNEL, "-f", "{connection_file}"]
    record = {"argv": command, "display_name": "notebook", "language": "python", "env": environment}
    (kernel / "kernel.json").write_text(json.dumps(record))
    lab = Lab(folder)
    try:
        with chromium() as browser:
            context = browser.new_context(viewport={"width": 1280, "height": 1000})
            yield Notebook(lab, NotebookPage(lab, context.new_page()))
    finally:
        lab.stop()


def _runs() -> list[Path]:
    return list((Path(os.environ["JUPYTER_DATA_DIR"]) / "ddl_magics" / "runs").glob("*"))


def ages(made: list[tuple[int, float]], drawn: list[tuple[int, float]]) -> list[float]:
    """For each thing that was made, the seconds until the view had drawn it; what came before `drawn` is left out.

    Args:
        made: (steps of the run that it reaches, when), in order.
        drawn: (steps that the view has reached, when), in order.
    """
    found, at = [], 1
    for steps, time in made:
        while at < len(drawn) and drawn[at][0] < steps:
            at += 1
        if at < len(drawn) and steps > drawn[0][0]:
            found.append(drawn[at][1] - time)
    return found
