"""Trains a linear model, an epoch for each message, on a worker's rows.

    python -m benchmarks.child_processes.row_trainer share | rows | batch

share: `fit` on the runtime's dataset of the files of a message's folder. rows: as trainers on RDDs do, which get rows
of Python: lists of a batch's rows, NumPy arrays of them, `train_on_batch`. The rows are in memory as tuples before.
batch: `fit` on the first batch of rows, again and again. The answer is the `Times` of cnn_keras.py.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ddl_magics.runtime.data import rank_data


def make_model(width: int) -> Any:
    model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile("sgd", "binary_crossentropy")
    return model


def of_share(folder: Path, batch: int) -> Callable[[], int]:
    manifest = json.loads((folder / "manifest.json").read_text())
    dataset = rank_data.datasets(str(folder), manifest, 0, 1, batch, 7, global_batch=False)[0]
    model = make_model(manifest["tensors"][0]["shape"][0])

    def epoch() -> int:
        model.fit(dataset, shuffle=False, verbose=0)
        return int(manifest["rows"])

    return epoch


def of_rows(folder: Path, batch: int) -> Callable[[], int]:
    x, y = (np.load(folder / f"train-{index}.npy").tolist() for index in range(2))
    rows = list(zip(x, y, strict=True))
    model = make_model(len(x[0]))

    def epoch() -> int:
        for first in range(0, len(rows), batch):
            some = rows[first : first + batch]
            model.train_on_batch(np.array([row[0] for row in some], np.float32), np.array([row[1] for row in some]))
        return len(rows)

    return epoch


def of_batch(folder: Path, batch: int) -> Callable[[], int]:
    x, y = (np.load(folder / f"train-{index}.npy", mmap_mode="r") for index in range(2))
    steps = -(-len(x) // batch)
    dataset = tf.data.Dataset.from_tensors((x[:batch], y[:batch])).repeat(steps)
    model = make_model(x.shape[1])

    def epoch() -> int:
        model.fit(dataset, verbose=0)
        return steps * batch

    return epoch


WAYS = {"share": of_share, "rows": of_rows, "batch": of_batch}


def serve(way: str) -> None:
    """Answer messages until standard input ends."""
    epochs: dict[str, Callable[[], int]] = {}
    for line in sys.stdin:
        reading = json.loads(line)
        folder = reading["folder"]
        if folder not in epochs:
            epochs[folder] = WAYS[way](Path(folder), reading["batch"])
        cpu, seconds = time.process_time(), time.monotonic()
        rows = epochs[folder]()
        times = {"cpu": time.process_time() - cpu, "seconds": time.monotonic() - seconds, "rows": rows}
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
