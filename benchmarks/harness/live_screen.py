"""When the steps of a run are drawn: a real JupyterLab with the live view of a kernel without TensorFlow and Spark."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from browser.lab import CHROMIUM, Lab, NotebookPage, chromium
from playwright.sync_api import expect
from support import sparkmagic_kernels

START_SECONDS = 200

#: The observer is called in the frame in which the view changes its text; the message that it posts arrives when that
#: frame has been rendered.
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
    """A run that was watched to its end.

    Attributes:
        drawn: (steps, time): since this time the chart of the loss reaches so many steps of the run.
        ended: when rank 0 ended each step.
        events: that the kernel stored.
    """

    drawn: list[tuple[int, float]]
    ended: list[float]
    events: list[dict[str, Any]]


class Notebook:
    """Runs one cell at a time in a page of its own."""

    def __init__(self, lab: Lab, page: NotebookPage) -> None:
        self._lab, self._page = lab, page

    def watch(self, url: str, cell: str, seconds: float) -> Watched:
        """Run a training cell, of a run named `live`, on a new session of the Livy at `url`, and watch it to its end.

        RuntimeError if the run is not on Livy or does not finish.
        """
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
    """What is missing here and what to do, in one line; empty if nothing is."""
    if not Path(CHROMIUM).exists():
        return f"{CHROMIUM} is missing: run `apt-get install chromium`, or set CHROMIUM"
    if not sparkmagic_kernels.PYTHON.exists():
        return ".venv-notebook is missing: run `make livy-env`"
    return ""


@contextmanager
def notebook(folder: Path, url: str) -> Iterator[Notebook]:
    """JupyterLab in `folder` with .venv-notebook as its Python kernel, and Chromium. Runs go to JUPYTER_DATA_DIR."""
    # Of all paths only JUPYTER_PATH comes before the kernels of JupyterLab's own environment.
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
    """The seconds from each step or event until it was drawn; those that the first drawing reaches are left out.

    Args:
        made: (steps of the run that it reaches, time), in order.
        drawn: (steps that the view reaches, time), in order.
    """
    found, index = [], 1
    for steps, time in made:
        while index < len(drawn) and drawn[index][0] < steps:
            index += 1
        if index < len(drawn) and steps > drawn[0][0]:
            found.append(drawn[index][1] - time)
    return found
