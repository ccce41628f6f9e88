"""Makes docs/images/live.webp, the README's moving picture: `make readme-animation`.

    python scripts/readme_animation.py record FOLDER           screenshots of a run, with their times, in .venv
    python scripts/readme_animation.py assemble FOLDER FILE    the animation of them, where Pillow is (.venv-docs)

The run is real: a cell trains on two workers of the embedded Spark, in JupyterLab in headless Chromium. It is the
second run of its session, so Spark and TensorFlow are loaded. A run of more than SHOWN_SECONDS is shown faster;
`assemble` prints how much, for the README to say. The picture is as narrow as a phone can show it readably, so that it
has the cell and its view alone.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from browser.lab import NotebookPage
    from playwright.sync_api import Locator

ROOT = Path(__file__).resolve().parent.parent

NOTEBOOK = "digits.ipynb"
SETUP = """\
%load_ext ddl_magics
from sklearn.datasets import load_digits

images, y_train = load_digits(return_X_y=True)
x_train = (images / 16).astype("float32")"""
TRAINING = """\
%%distributed --workers 2 --name digits
import keras

model = keras.Sequential([
    keras.layers.Dense(128, activation="relu"),
    keras.layers.Dense(10, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy",
              metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=64, epochs=60,
          validation_split=0.2)"""
#: Starts Spark, and leaves prewarmed processes; it is not in the picture.
WARM_UP = TRAINING.replace("--name digits", "--name warm_up --wait").replace("epochs=60", "epochs=1")

VIEWPORT = {"width": 572, "height": 900}
SCALE = 1.5
#: Of the picture, in pixels of the page: the cell, the head of its view and two charts.
HEIGHT = 636
#: A notebook without what only an editor needs.
STYLE = """
.jp-InputPrompt, .jp-OutputPrompt, .jp-Collapser, .jp-cell-toolbar, .jp-Notebook-footer,
.jp-Cell[data-windowed-list-index="0"] { display: none !important; }
.jp-Notebook .jp-Cell { border-color: transparent !important; box-shadow: none !important; }
"""
FRAME_SECONDS = 0.4
FIRST_SECONDS, LAST_SECONDS = 1.5, 5.0
RUN_SECONDS = 300.0
SHOWN_SECONDS = 20.0
LEAST_FRAME_SECONDS = 0.3
TIMES = "times.json"


def record(folder: Path) -> None:
    """Write 000.png, 001.png, ... and how long each is shown, in seconds."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser.lab import Lab, NotebookPage, chromium

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        os.environ["JUPYTER_DATA_DIR"] = f"{name}/.data"
        lab = Lab(Path(name))
        try:
            notebook = NotebookPage(lab, browser.new_context(viewport=VIEWPORT, device_scale_factor=SCALE).new_page())
            notebook.open(lab.write(NOTEBOOK, SETUP, WARM_UP, TRAINING))
            notebook.command("application:toggle-left-area")
            prepare(notebook)
            (folder / TIMES).write_text(json.dumps(frames(notebook, folder)))
        finally:
            lab.stop()


def prepare(notebook: NotebookPage) -> None:
    """Run all cells but the training, remove the one that warms up, and show the training alone."""
    for _ in range(2):
        notebook.command("notebook:run-cell-and-select-next")
    finished(notebook).wait_for(timeout=RUN_SECONDS * 1000)
    notebook.command("notebook:move-cursor-up")
    notebook.command("notebook:delete-cell")
    finished(notebook).wait_for(state="detached")
    notebook.page.locator(".Toastify__toast").first.wait_for(state="detached")  # that the warm-up has finished
    notebook.page.add_style_tag(content=STYLE)


def finished(notebook: NotebookPage) -> Locator:
    """The state in the live view of a run that has finished."""
    found: Locator = notebook.page.locator(".ddl-chip", has_text="FINISHED")
    return found


def frames(notebook: NotebookPage, folder: Path) -> list[float]:
    """Run the training cell and take screenshots until it has ended."""
    times: list[float] = []

    area = notebook.page.locator(".jp-Notebook").bounding_box()
    assert area is not None, "the notebook is drawn"

    def take() -> None:
        clip = {"x": area["x"], "y": area["y"], "width": area["width"], "height": HEIGHT}
        notebook.page.screenshot(path=folder / f"{len(times):03}.png", clip=clip)
        times.append(time.monotonic())

    take()
    notebook.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    notebook.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
    begun = time.monotonic()
    while finished(notebook).count() == 0:
        if time.monotonic() - begun > RUN_SECONDS:
            raise RuntimeError(f"the run has not ended after {RUN_SECONDS:g} s")
        time.sleep(FRAME_SECONDS)
        take()
    take()
    shown = [later - earlier for earlier, later in itertools.pairwise(times)]
    return [FIRST_SECONDS, *shown[1:], LAST_SECONDS]


def assemble(folder: Path, target: Path) -> None:
    """Write the animated WebP of the frames."""
    from PIL import Image

    seconds = json.loads((folder / TIMES).read_text())
    speed = max(1, round(sum(seconds[1:-1]) / SHOWN_SECONDS))
    shown = thinned([FIRST_SECONDS, *(each / speed for each in seconds[1:-1]), LAST_SECONDS])
    images = [Image.open(folder / f"{number:03}.png").convert("RGB") for number in shown]
    durations = [round(1000 * each) for each in shown.values()]
    images[0].save(
        target,
        save_all=True,
        append_images=images[1:],
        duration=durations,
        loop=0,
        quality=75,
        method=4,
        minimize_size=True,
        allow_mixed=True,
    )
    print(f"wrote {target.name}: {len(images)} frames, {target.stat().st_size / 1e6:.2f} MB, {speed} times as fast")


def thinned(seconds: list[float]) -> dict[int, float]:
    """Number of a frame -> seconds that it is shown. A frame after one that is shown too shortly is left out."""
    shown: dict[int, float] = {}
    for number, each in enumerate(seconds):
        last = max(shown, default=0)
        if number and shown[last] < LEAST_FRAME_SECONDS and number < len(seconds) - 1:
            shown[last] += each
        else:
            shown[number] = each
    return shown


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", folder]:
            record(Path(folder))
        case ["assemble", folder, target]:
            assemble(Path(folder), Path(target))
        case _:
            sys.exit(__doc__)
