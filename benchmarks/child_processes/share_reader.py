"""Reads a rank's share once for each message, in one of several ways.

    python -m benchmarks.child_processes.share_reader ours | generator | slices

ours: the runtime's reader. generator: `from_generator`, which calls Python for each batch. slices: tf.data's
`from_tensor_slices`, with a full shuffle, of arrays in memory. A message is a `Reading`, the answer the `Times` of
cnn_keras.py.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import tensorflow as tf

from ddl_magics.runtime.data import rank_data

Dataset = Any


class Reading(TypedDict):
    """An epoch over a share.

    folder: with the files of a share and its manifest. batch: rows. in_graph: by a loop in a tf.function, as Keras'
    `fit` has it with steps_per_execution, and not by one in Python.
    """

    folder: str
    batch: int
    in_graph: bool


def make_dataset(way: str, folder: Path, batch: int) -> Dataset:
    manifest = json.loads((folder / "manifest.json").read_text())
    if way == "ours":
        return rank_data.datasets(str(folder), manifest, 0, 1, batch, 7, global_batch=False)[0]
    x, y = (np.load(folder / f"train-{index}.npy", mmap_mode="r") for index in range(2))
    if way == "slices":
        slices = tf.data.Dataset.from_tensor_slices((np.asarray(x), np.asarray(y)))
        return slices.shuffle(len(x)).batch(batch).prefetch(4)

    def batches() -> Any:
        order = np.random.default_rng().permutation(len(x))
        for first in range(0, len(x), batch):
            rows = order[first : first + batch]
            yield x[rows], y[rows]

    specs = tf.TensorSpec([None, *x.shape[1:]], x.dtype), tf.TensorSpec([None], y.dtype)
    return tf.data.Dataset.from_generator(batches, output_signature=specs).prefetch(4)


@tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
def count_in_graph(dataset: Dataset) -> Any:
    rows = tf.constant(0)
    for _, labels in dataset:
        rows += tf.shape(labels)[0]
    return rows


def count_in_python(dataset: Dataset) -> int:
    rows = 0
    for _, labels in dataset:
        rows += labels.shape[0]
    return rows


def serve(way: str) -> None:
    """Answer messages until standard input ends."""
    datasets: dict[tuple[str, int], Dataset] = {}
    for line in sys.stdin:
        reading = json.loads(line)
        key = reading["folder"], reading["batch"]
        if key not in datasets:
            datasets[key] = make_dataset(way, Path(reading["folder"]), reading["batch"])
        count = count_in_graph if reading["in_graph"] else count_in_python
        if reading["in_graph"]:
            count_in_graph.get_concrete_function(datasets[key])
        cpu, seconds = time.process_time(), time.monotonic()
        rows = int(count(datasets[key]))
        times = {"cpu": time.process_time() - cpu, "seconds": time.monotonic() - seconds, "rows": rows}
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
