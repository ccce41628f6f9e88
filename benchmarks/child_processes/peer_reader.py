"""Reads the rows of files once for each message, as another library does. The answers are those of share_reader.py.

    python -m benchmarks.child_processes.peer_reader tfrecord | petastorm | datasets

tfrecord: tf.data's TFRecordDataset, a shuffle of 10,000 records, batches, and one parse_example a batch. petastorm:
its batch reader, which yields row groups as NumPy arrays: no batches, and no order but that of the groups. datasets:
Hugging Face's `to_tf_dataset` with a full shuffle. A message's folder has the files.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

SHUFFLED_RECORDS = 10_000
FEATURES = [f"x{k}" for k in range(30)]
LABEL = "y"


def of_tfrecord(folder: str, batch: int) -> Callable[[], int]:
    import tensorflow as tf

    specs = {name: tf.io.FixedLenFeature([], tf.float32) for name in FEATURES}
    specs[LABEL] = tf.io.FixedLenFeature([], tf.int64)

    def parse(records: Any) -> Any:
        parsed = tf.io.parse_example(records, specs)
        return tf.stack([parsed[name] for name in FEATURES], axis=1), parsed[LABEL]

    records = tf.data.TFRecordDataset(tf.io.gfile.glob(folder + "/*.tfrecord")).shuffle(SHUFFLED_RECORDS)
    return _counted(records.batch(batch).map(parse).prefetch(4))


def of_datasets(folder: str, batch: int) -> Callable[[], int]:
    import datasets

    datasets.disable_progress_bars()
    files = datasets.Dataset.from_parquet(folder + "/*.parquet", cache_dir=folder + "/datasets")
    return _counted(files.to_tf_dataset(columns=FEATURES, label_cols=LABEL, batch_size=batch, shuffle=True))


def of_petastorm(folder: str, batch: int) -> Callable[[], int]:
    from petastorm import make_batch_reader

    def count() -> int:
        with make_batch_reader("file://" + folder, workers_count=2, shuffle_row_groups=True) as reader:
            return sum(len(group.y) for group in reader)

    return count


def _counted(dataset: Any) -> Callable[[], int]:
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def count(elements: Any) -> Any:
        rows = tf.constant(0)
        for _, labels in elements:
            rows += tf.shape(labels)[0]
        return rows

    count.get_concrete_function(dataset)
    return lambda: int(count(dataset))


WAYS = {"tfrecord": of_tfrecord, "petastorm": of_petastorm, "datasets": of_datasets}


def serve(way: str) -> None:
    """Answer messages until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    counts: dict[str, Callable[[], int]] = {}
    for line in sys.stdin:
        reading = json.loads(line)
        folder = reading["folder"]
        if folder not in counts:
            counts[folder] = WAYS[way](folder, reading["batch"])
        cpu, seconds = time.process_time(), time.monotonic()
        rows = counts[folder]()
        times = {"cpu": time.process_time() - cpu, "seconds": time.monotonic() - seconds, "rows": rows}
        print(json.dumps(times), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
