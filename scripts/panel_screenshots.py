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

#: name -> (width, height, dark)
PICTURES = {
    "panel-light": (1280, 800, False),
    "panel-dark": (1280, 800, True),
    "panel-narrow": (640, 800, False),
}


def training(name, ago, share, cluster, notebook, workers=4, end=None, message="", labels=(), **failure):
    """A run that was begun so many seconds `ago`, trained to this share of its epochs, and ended or goes on."""
    epochs, steps, seconds = 10, 938, max(ago if end is None else 120.0, 1.0) / (share * 10 * 938)
    begun = time.time() - ago
    invented = Synthetic(workers, epochs, steps, gpus=0, step_seconds=seconds, start=begun, seed=len(name))
    told = [*invented.begin(), *invented.train(share)]
    losses = [event["metrics"] for event in told if event["kind"] == "epoch"]
    folder = stored(end or ev.RUNNING, told, name=name, created=begun, workers=workers, cell=f"model.fit({name})")
    progress = {"epoch": len(losses), "epochs": epochs, "steps": steps, "begun": begun + 3}
    changes = {"cluster": cluster, "notebook": notebook, "progress": {**progress, "metrics": (losses or [{}])[-1]}}
    if end is not None:
        changes["ended"] = invented.time
    if failure:
        changes["failure"] = {"kind": "error", "message": message, "traceback": "", **failure}
    folder.update(changes)
    if labels:
        folder.label(list(labels), None)


def runs():
    """What the panel lists."""
    training("digits", 142, 0.62, "hdi-prod", "/home/me/digits.ipynb")
    training("energy", 31, 0.07, "this machine", "/home/me/energy.ipynb", workers=2)
    failed = {"rank": 1, "host": "wn4", "message": "ValueError: Input 0 of layer dense is incompatible"}
    training("higgs", 2 * HOUR, 0.24, "hdi-prod", "/home/me/higgs.ipynb", 8, ev.FAILED, **failed)
    training("mnist", 26 * HOUR, 1.0, "this machine", "/home/me/mnist.ipynb", 2, ev.FINISHED, labels=["paper"])
    training("mnist_lr", 27 * HOUR, 0.5, "this machine", "/home/me/mnist.ipynb", 2, ev.STOPPED)


def picture(page, panel, dark):
    """Opens the run that goes on."""
    for record in store.list_runs():
        store.RunFolder(record.folder).remove()
    runs()
    panel.open()
    panel.theme("dark" if dark else "light")
    panel.row("digits").dblclick()
    page.locator(".ddl-run canvas").first.wait_for()
    time.sleep(1)  # the bar's animation; this is a picture, not a test


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        os.environ["JUPYTER_DATA_DIR"] = str(Path(name) / "data")
        (Path(name) / "lab").mkdir()
        lab = Lab(Path(name) / "lab")
        try:
            for target, (width, height, dark) in PICTURES.items():
                size = {"width": width, "height": height}
                page = browser.new_context(viewport=size, device_scale_factor=1.5).new_page()
                panel = PanelPage(lab, page)
                picture(page, panel, dark)
                page.screenshot(path=folder / f"{target}.png")
                reduce(folder / f"{target}.png")
                print(folder / f"{target}.png", *panel.errors)
                page.context.close()
        finally:
            lab.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if sys.argv[1:] else IMAGES)
