"""Pictures of TensorBoard's and MLflow's pages for docs/history.md: `make tracking-pictures`.

A run and a search train on an embedded Spark, with --tensorboard and --mlflow; a real TensorBoard and a real tracking
server follow them, and a headless Chromium takes the pictures.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser.lab import chromium  # noqa: E402 - the path to it is set above
from live_view_pictures import reduce  # noqa: E402
from support.mlflow_server import mlflow_server  # noqa: E402
from support.tensorboards import tensorboard  # noqa: E402

from ddl_magics.clusters.embedded import EmbeddedCluster  # noqa: E402
from ddl_magics.options.parsing import parse  # noqa: E402
from ddl_magics.session.session import Session  # noqa: E402

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


def train(logs: Path, uri: str) -> None:
    """A run on two workers, and a search of six trials."""
    cluster = EmbeddedCluster(dict)
    session = Session(cluster)
    places = f"--tensorboard {logs} --mlflow {uri} --conf spark.master=local[2]"
    session.submit(dataclasses.replace(parse(f"--name digits --seed 1 {places}"), cell=CELL), {}).wait(200)
    line = f"--trials 6 --objective val_accuracy:max --name tuned --seed 1 --parallel 2 {places}"
    session.search(dataclasses.replace(parse(line), cell=CELL), {}).wait(400)
    session.close()


def take(page: Page, url: str, name: str, prepare: Callable[[Page], None]) -> None:
    """Store a small picture of the page at an address, after something was clicked."""
    page.goto(url)
    time.sleep(DRAW_SECONDS)
    prepare(page)
    time.sleep(DRAW_SECONDS / 3)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    reduce(path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


def close_settings(page: Page) -> None:
    """TensorBoard's pane at the right."""
    page.get_by_role("button", name="Close side pane").click()


def fewer_columns(page: Page) -> None:
    """TensorBoard's table, in whose width the metrics then have room."""
    for name in ("workers", "seed", "accuracy", "loss", "steps/accuracy", "steps/loss"):
        page.locator("paper-checkbox").filter(has_text=re.compile(rf"^\s*{name}\s*$")).click()
    page.locator("paper-checkbox").filter(has_text=re.compile(r"^\s*lr\s*$")).scroll_into_view_if_needed()


def unfold_search(page: Page) -> None:
    """MLflow's list of training runs, with the trials of the search and their accuracy."""
    page.get_by_role("button", name="Close", exact=True).click()
    page.get_by_text("Model training").first.click()
    page.get_by_role("button", name="Columns", exact=True).click()
    menu = page.locator("[class*=tree-title]")  # the list is virtual: a column is looked up by its name
    for column in ("Dataset", "Source", "Models", "val_accuracy", "lr", "units"):
        page.get_by_placeholder("Search columns").fill(column)
        menu.filter(has_text=re.compile(f"^{column}$")).first.click()
    page.keyboard.press("Escape")
    page.get_by_role("row").filter(has_text="tuned").get_by_role("button").first.click()


def main() -> None:
    """The command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(JUPYTER_DATA_DIR=str(folder / "data"), MLFLOW_DISABLE_TELEMETRY="true")
        (folder / "mlflow").mkdir()
        with mlflow_server(folder / "mlflow") as uri, tensorboard(folder / "logs") as board:
            train(folder / "logs", uri)
            with chromium() as browser:
                page = browser.new_page(viewport=SIZE)
                take(page, f"{board.url}/#timeseries", "tensorboard-scalars", close_settings)
                take(page, f"{board.url}/#hparams", "tensorboard-hparams", fewer_columns)
                take(page, f"{uri}/#/experiments/1/runs", "mlflow-runs", unfold_search)


if __name__ == "__main__":
    main()
