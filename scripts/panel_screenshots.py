"""Makes the screenshots of the docs of panel, serving and monitoring: `make panel-pictures`, or this with a FOLDER.

A real JupyterLab shows its panel with synthetic runs from a temporary store.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser.lab import Lab, chromium  # noqa: E402 - the path to it is set above
from browser.panel_page import PanelPage  # noqa: E402
from live_view_pictures import reduce  # noqa: E402
from support.invented_search import StoredSearch  # noqa: E402
from support.invented_server import InventedServer  # noqa: E402
from support.monitored import events as events_of_a_monitor  # noqa: E402
from support.stored import stored  # noqa: E402
from support.synthetic import Synthetic  # noqa: E402

from ddl_magics import store  # noqa: E402
from ddl_magics.runtime import events as ev  # noqa: E402

IMAGES = ROOT / "docs" / "images"
HOUR = 3600.0
EPOCHS, STEPS = 10, 938

CELL = """\
model.compile(keras.optimizers.Adam({rate}), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(dataset, validation_data=validation, epochs=10)"""


class Learner(Synthetic):  # type: ignore[misc]  # mypy does not look into the tests
    """A synthetic run with a loss that falls `speed` times as fast as usual."""

    speed = 1.0

    def metrics(self, share: float, *noise: float, **gap: float) -> dict[str, float]:
        metrics: dict[str, float] = super().metrics(share * self.speed, *noise, **gap)
        return metrics


def training(
    name: str,
    ago: float,
    share: float,
    cluster: str,
    notebook: str,
    workers: int = 4,
    end: str | None = None,
    labels: Sequence[str] = (),
    failure: dict[str, Any] | None = None,
    speed: float = 1.0,
    **spec: Any,
) -> None:
    """Store a run.

    Args:
        name: of the run.
        ago: seconds since it began.
        share: of its epochs that it has trained.
        cluster: that it ran on, as the panel shows it.
        notebook: path of its notebook.
        workers: number of ranks.
        end: its last state; None while it is training.
        labels: that a user has given it.
        failure: as its event has it.
        speed: of `Learner`.
        spec: further fields of its spec.
    """
    seconds = max(ago if end is None else 120.0, 1.0) / (share * EPOCHS * STEPS)
    begun = time.time() - ago
    run = Learner(workers, EPOCHS, STEPS, gpus=0, step_seconds=seconds, start=begun)
    run.speed = speed
    events = [*run.begin(), *run.train(share), *(run.end(end) if end else ())]
    metrics = [event["metrics"] for event in events if event["kind"] == "epoch"]
    spec = {"cell": CELL.format(rate=0.001), **spec}
    folder = stored(end or ev.RUNNING, events, name=name, created=begun, workers=workers, **spec)
    progress = {"epoch": len(metrics), "epochs": EPOCHS, "steps": STEPS, "begun": begun + 3}
    changes = {"cluster": cluster, "notebook": notebook, "progress": {**progress, "metrics": (metrics or [{}])[-1]}}
    folder.update({**changes, "failure": failure, "ended": run.time if end else None})
    folder.label(list(labels), None)


def store_runs() -> None:
    """Store the runs that the panel lists."""
    training("digits", 142, 0.62, "hdi-prod", "/home/me/digits.ipynb")
    training("energy", 31, 0.07, "this machine", "/home/me/energy.ipynb", workers=2)
    message = "ValueError: Input 0 of layer dense is incompatible"
    failure = {"rank": 1, "host": "wn4", "kind": "error", "message": message, "traceback": message}
    training("higgs", 2 * HOUR, 0.24, "hdi-prod", "/home/me/higgs.ipynb", 8, ev.FAILED, failure=failure)
    notebook, slow = "/home/me/mnist.ipynb", CELL.format(rate=0.0003)
    training("mnist", 26 * HOUR, 1.0, "this machine", notebook, 2, ev.FINISHED, labels=["paper"], batch_size=256)
    training("mnist_lr", 27 * HOUR, 0.5, "this machine", notebook, 2, ev.STOPPED, speed=0.6, batch_size=128, cell=slow)


def show_running(page: Page, panel: PanelPage) -> None:
    panel.row("digits").dblclick()
    page.locator(".ddl-run canvas").first.wait_for()


def show_comparison(page: Page, panel: PanelPage) -> None:
    panel.row("mnist").click()
    panel.row("mnist_lr").click(modifiers=["Control"])
    panel.button("Compare").click()
    page.locator(".ddl-compare canvas").first.wait_for()


def show_search(page: Page, panel: PanelPage) -> None:
    StoredSearch(34, training=4)
    panel.row("tuned").get_by_text("34 of 40").wait_for()
    panel.row("tuned").locator(".ddl-row-fold").click()
    panel.row("tuned").dblclick()
    page.locator(".ddl-search tbody tr").first.wait_for()


def show_monitor(page: Page, panel: PanelPage) -> None:
    """Two served models, and the monitor of one of them."""
    begun = time.time() - HOUR
    events = [{**event, "time": begun} for event in events_of_a_monitor()]
    stored(ev.RUNNING, events, name="watch", created=begun, strategy="monitor", workers=0, monitor={})
    for name, version, rate, errors, latencies in (
        ("energy", "3", 48.2, 3, (0.0061, 0.0098, 0.014)),
        ("digits", "1", 3.0, 0, (0.0012, 0.0034, 0.0081)),
    ):
        served = InventedServer(name, version, http_port=18080 + len(SERVED))
        rates = [rate * (1 + math.sin(k / 3) / 9) for k in range(30)]
        served.count(rate, int(1000 * rate), errors, version, latencies, rates)
        SERVED.append(served)
    panel.root.locator(".ddl-server-name").nth(1).wait_for()
    panel.row("watch").dblclick()
    page.locator(".ddl-monitor tbody tr").first.wait_for()


#: Ended when the screenshots are made.
SERVED: list[Any] = []

#: Name of the file -> (opens what it shows, width, height, dark theme).
SCREENSHOTS: dict[str, tuple[Callable[[Page, PanelPage], None], int, int, bool]] = {
    "panel-light": (show_running, 1280, 800, False),
    "panel-dark": (show_running, 1280, 800, True),
    "panel-compare": (show_comparison, 1280, 1100, False),
    "panel-search": (show_search, 1280, 900, False),
    "panel-narrow": (show_running, 640, 800, False),
    "panel-monitor-light": (show_monitor, 1280, 1000, False),
    "panel-monitor-dark": (show_monitor, 1280, 1000, True),
}


def main(folder: Path) -> None:
    """Write the screenshots into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        os.environ["JUPYTER_DATA_DIR"] = str(Path(name) / "data")
        (Path(name) / "lab").mkdir()
        lab = Lab(Path(name) / "lab")
        try:
            for target, (show, width, height, dark) in SCREENSHOTS.items():
                runs, searches = store.list_runs(), store.list_searches()
                for stored_folder in [*(run.folder for run in runs), *(search.folder for search in searches)]:
                    shutil.rmtree(stored_folder)
                store_runs()
                size = {"width": width, "height": height}
                page = browser.new_context(viewport=size, device_scale_factor=1.5).new_page()
                panel = PanelPage(lab, page)
                panel.open()
                panel.theme("dark" if dark else "light")
                show(page, panel)
                time.sleep(1)  # the animation of the progress bar
                page.screenshot(path=folder / f"{target}.png")
                reduce(folder / f"{target}.png")
                print(folder / f"{target}.png", *panel.errors)
                page.context.close()
                while SERVED:
                    SERVED.pop().end()
        finally:
            lab.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if sys.argv[1:] else IMAGES)
