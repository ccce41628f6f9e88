"""Makes the pictures of docs/panel.md: `make panel-pictures`, or `python scripts/panel_screenshots.py FOLDER`.

A real JupyterLab with its panel shows invented runs of a store of its own.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser.lab import Lab, chromium  # noqa: E402 - the path to it is set above
from browser.panel_page import PanelPage  # noqa: E402
from browser.screenshots import reduce  # noqa: E402
from browser.synthetic import Synthetic  # noqa: E402
from server.stored import stored  # noqa: E402

from ddl_magics import store  # noqa: E402
from ddl_magics.runtime import events as ev  # noqa: E402

IMAGES = ROOT / "docs" / "images"
HOUR = 3600.0

CELL = """\
model.compile(keras.optimizers.Adam({rate}), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(dataset, validation_data=validation, epochs=10)"""


class Learner(Synthetic):
    """Its loss falls at this speed, 1 being the usual one."""

    speed = 1.0

    def metrics(self, share, *noise, **gap):
        return super().metrics(share * self.speed, *noise, **gap)


def training(name, ago, share, cluster, notebook, workers=4, end=None, labels=(), failure=None, speed=1.0, **spec):
    """A run that was begun so many seconds `ago`, trained to this share of its epochs, and ended or goes on."""
    epochs, steps, seconds = 10, 938, max(ago if end is None else 120.0, 1.0) / (share * 10 * 938)
    begun = time.time() - ago
    invented = Learner(workers, epochs, steps, gpus=0, step_seconds=seconds, start=begun)
    invented.speed = speed
    told = [*invented.begin(), *invented.train(share), *(invented.end(end) if end else ())]
    losses = [event["metrics"] for event in told if event["kind"] == "epoch"]
    spec = {"cell": CELL.format(rate=0.001), **spec}
    folder = stored(end or ev.RUNNING, told, name=name, created=begun, workers=workers, **spec)
    progress = {"epoch": len(losses), "epochs": epochs, "steps": steps, "begun": begun + 3}
    changes = {"cluster": cluster, "notebook": notebook, "progress": {**progress, "metrics": (losses or [{}])[-1]}}
    folder.update({**changes, "failure": failure, "ended": invented.time if end else None})
    folder.label(list(labels), None)


def runs():
    """What the panel lists."""
    training("digits", 142, 0.62, "hdi-prod", "/home/me/digits.ipynb")
    training("energy", 31, 0.07, "this machine", "/home/me/energy.ipynb", workers=2)
    message = "ValueError: Input 0 of layer dense is incompatible"
    failure = {"rank": 1, "host": "wn4", "kind": "error", "message": message, "traceback": message}
    training("higgs", 2 * HOUR, 0.24, "hdi-prod", "/home/me/higgs.ipynb", 8, ev.FAILED, failure=failure)
    notebook, slow = "/home/me/mnist.ipynb", CELL.format(rate=0.0003)
    training("mnist", 26 * HOUR, 1.0, "this machine", notebook, 2, ev.FINISHED, labels=["paper"], batch_size=256)
    training("mnist_lr", 27 * HOUR, 0.5, "this machine", notebook, 2, ev.STOPPED, speed=0.6, batch_size=128, cell=slow)


def run_that_goes_on(page, panel):
    panel.row("digits").dblclick()
    page.locator(".ddl-run canvas").first.wait_for()


def two_runs(page, panel):
    panel.row("mnist").click()
    panel.row("mnist_lr").click(modifiers=["Control"])
    panel.button("Compare").click()
    page.locator(".ddl-compare canvas").first.wait_for()


#: name -> (what is open, width, height, dark)
PICTURES = {
    "panel-light": (run_that_goes_on, 1280, 800, False),
    "panel-dark": (run_that_goes_on, 1280, 800, True),
    "panel-compare": (two_runs, 1280, 1100, False),
    "panel-narrow": (run_that_goes_on, 640, 800, False),
}


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        os.environ["JUPYTER_DATA_DIR"] = str(Path(name) / "data")
        (Path(name) / "lab").mkdir()
        lab = Lab(Path(name) / "lab")
        try:
            for target, (show, width, height, dark) in PICTURES.items():
                for record in store.list_runs():
                    store.RunFolder(record.folder).remove()
                runs()
                size = {"width": width, "height": height}
                page = browser.new_context(viewport=size, device_scale_factor=1.5).new_page()
                panel = PanelPage(lab, page)
                panel.open()
                panel.theme("dark" if dark else "light")
                show(page, panel)
                time.sleep(1)  # the bar's animation; this is a picture, not a test
                page.screenshot(path=folder / f"{target}.png")
                reduce(folder / f"{target}.png")
                print(folder / f"{target}.png", *panel.errors)
                page.context.close()
        finally:
            lab.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if sys.argv[1:] else IMAGES)
