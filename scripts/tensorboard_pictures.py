"""Pictures of TensorBoard's page for docs/history.md: `make tensorboard-pictures`.

A run and a search train on an embedded Spark, with --tensorboard; a real TensorBoard follows them, and a headless
Chromium takes the pictures.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser.lab import chromium  # noqa: E402 - the path to it is set above
from browser.screenshots import reduce  # noqa: E402
from support.tensorboards import tensorboard  # noqa: E402

from ddl_magics.clusters.embedded import EmbeddedCluster  # noqa: E402
from ddl_magics.notebook.session import Session  # noqa: E402
from ddl_magics.options.parsing import parse  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 760}
#: For a page to draw what it has loaded.
DRAW_SECONDS = 12.0

CELL = """
import keras
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = (x / 16.0).astype("float32")
lr = ddl.suggest_float("lr", 1e-4, 1e-1, log=True, default=1e-3)
units = ddl.suggest_int("units", 16, 128, log=True, default=32)
model = keras.Sequential([keras.layers.Dense(units, "relu"), keras.layers.Dense(10, "softmax")])
model.compile(keras.optimizers.Adam(lr), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, validation_split=0.2, epochs=6, batch_size=64, verbose=0)
"""


def train(logs: Path) -> None:
    """A run on two workers, and a search of six trials."""
    cluster = EmbeddedCluster(dict)
    session = Session(cluster)
    places = f"--tensorboard {logs} --conf spark.master=local[2]"
    session.submit(dataclasses.replace(parse(f"--name digits --seed 1 {places}"), cell=CELL), {}).wait(200)
    line = f"--trials 6 --objective val_accuracy:max --name tuned --seed 1 --parallel 2 {places}"
    session.search(dataclasses.replace(parse(line), cell=CELL), {}).wait(400)
    session.close()


def take(page: Page, url: str, name: str) -> None:
    """Store a small picture of the page at an address."""
    page.goto(url)
    time.sleep(DRAW_SECONDS)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    reduce(path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """The command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(JUPYTER_DATA_DIR=str(folder / "data"))
        with tensorboard(folder / "logs") as board:
            train(folder / "logs")
            with chromium() as browser:
                page = browser.new_page(viewport=SIZE)
                take(page, f"{board.url}/#timeseries", "tensorboard-scalars")
                take(page, f"{board.url}/#hparams", "tensorboard-hparams")


if __name__ == "__main__":
    main()
