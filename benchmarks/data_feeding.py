"""What --data costs: reading a rank's share, and packing rows of Spark, in thousands of rows per CPU second.

    python -m benchmarks.data_feeding [--quick] [--rounds N] [--pause SECONDS]

Reading is an epoch in batches of 256 over shuffled rows, in one process: by the runtime, by a generator that is called
for each batch, and by `from_tensor_slices`, which has all rows in memory. "loop" iterates in Python, "graph" in a
tf.function. Packing makes blobs of rows as PySpark yields them, in this process: at once, as the runtime does where it
can, and column by column with a look at each value. The rows are random: a million of 30 numbers and a label, and
60,000 of 784 numbers as an array. Each round has every variant once, in an order that changes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from ddl_magics.runtime.data import packing, share_files

from .harness import command, report
from .harness.json_process import JsonProcess, ask, close, cpu_environment, module_command
from .harness.rounds import rotated

BATCH = 256
ROUNDS, QUICK_ROUNDS = 9, 1
#: Of a table: rows, numbers in a row.
TABLES = {"31 columns": (1_000_000, 30), "784 pixels": (60_000, 784)}
QUICK_SHARE = 50
OURS, GENERATOR, SLICES = "ours", "generator", "slices"
AT_ONCE, BY_VALUE = "at once", "by value"
#: Rows that are packed in a round.
PACKED_NUMBERS = 1_500_000
GOAL_ROWS, GOAL_PACKING = 2000.0, 2.0

Samples = dict[str, list[float]]


def write_share(folder: Path, rows: int, width: int) -> None:
    """The files of a rank that has all rows."""
    random = np.random.default_rng(0)
    features = {"name": "features", "shape": [width], "dtype": "<f4", "use": "floatx", "text_bytes": 0}
    label = {"name": "label", "shape": [], "dtype": "<i8", "use": "int64", "text_bytes": 0}
    manifest: Any = {
        "data": "frame",
        "size": 1,
        "rows": rows,
        "validation_rows": 0,
        "validation_whole": True,
        "tensors": [features, label],
        "features": 0,
        "label": 1,
        "weight": None,
    }

    def blobs() -> Iterator[bytes]:
        for first in range(0, rows, packing.BLOB_ROWS):
            count = min(packing.BLOB_ROWS, rows - first)
            x = random.normal(size=(count, width)).astype(np.float32)
            yield packing.encode({"set": "train"}, [np.arange(first, first + count), x, random.integers(2, size=count)])

    share_files.store(blobs(), str(folder), manifest, 0, {"KERAS_HOME": str(folder)})
    (folder / "manifest.json").write_text(json.dumps(manifest))


def measure_reading(folders: dict[str, Path], rounds: int, pause: float) -> Samples:
    """{"TABLE, WAY, LOOP": thousands of rows per CPU second, of each round}."""
    samples: Samples = {}
    readers = {
        way: JsonProcess(module_command("share_reader", way), cpu_environment(one_thread=False))
        for way in (OURS, GENERATOR, SLICES)
    }
    try:
        for number in range(-1, rounds):  # the first round warms up
            for way in rotated(readers, number):
                for table, folder in folders.items():
                    for in_graph in (False, True):
                        reading = {"folder": str(folder), "batch": BATCH, "in_graph": in_graph}
                        (times,) = ask([readers[way]], reading)
                        time.sleep(pause)
                        if number >= 0:
                            name = f"{table}, {way}, {'graph' if in_graph else 'loop'}"
                            samples.setdefault(name, []).append(times["rows"] / times["cpu"] / 1e3)
                            samples.setdefault(name + ", wall", []).append(times["rows"] / times["seconds"] / 1e3)
            print(f"reading: round {number + 1} of {rounds}", file=sys.stderr)
    finally:
        close(list(readers.values()))
    return samples


def measure_packing(share: int, rounds: int) -> Samples:
    """{"TABLE, WAY": thousands of rows per CPU second, of each round}."""
    samples: Samples = {}
    for table, (_, width) in TABLES.items():
        values = np.random.default_rng(0).normal(size=(PACKED_NUMBERS // share // width, width)).tolist()
        wide = table.endswith("columns")
        rows = [(*row, 1) if wide else (row, 1) for row in values]
        count = width if wide else 1
        columns: Any = [{"name": f"x{k}", "dtype": "f4", "depth": int(not wide), "vector": False} for k in range(count)]
        columns.append({"name": "y", "dtype": "i4", "depth": 0, "vector": False})
        for number in range(-1, rounds):
            for way in rotated((AT_ONCE, BY_VALUE), number):
                with _look_at_each_value() if way == BY_VALUE else nullcontext():
                    cpu = time.process_time()
                    list(packing.pack(0, rows, columns, [list(range(count)), [count]]))
                    spent = time.process_time() - cpu
                if number >= 0:
                    samples.setdefault(f"{table}, {way}", []).append(len(rows) / spent / 1e3)
    return samples


def _look_at_each_value() -> AbstractContextManager[Any]:
    return patch.multiple(packing, at_once=lambda *_: None, matrix_at_once=lambda *_: None)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("data_feeding", __doc__, "few rows, one round")
    command.add_rounds(parser, ROUNDS)
    command.add_pause(parser)
    options = parser.parse_args(arguments)
    before = report.machine()
    share = QUICK_SHARE if options.quick else 1
    rounds = command.rounds(options, ROUNDS, QUICK_ROUNDS)
    with tempfile.TemporaryDirectory() as temporary:
        folders = {}
        for table, (rows, width) in TABLES.items():
            folders[table] = Path(temporary) / table
            write_share(folders[table], rows // share, width)
        reading = measure_reading(folders, rounds, options.pause)
    packed = measure_packing(share, rounds)
    per_cpu = {name: values for name, values in reading.items() if not name.endswith(", wall")}
    print(report.spread(per_cpu, "k rows/CPU s"), "\n")
    print(report.spread({name: values for name, values in reading.items() if name not in per_cpu}, "k rows/s"), "\n")
    print(report.spread(packed, "k rows/CPU s"), "\n")
    faster = (a / b for a, b in zip(packed[f"31 columns, {AT_ONCE}"], packed[f"31 columns, {BY_VALUE}"], strict=True))
    goals = [
        report.at_least(
            "reading 31 columns, k rows per CPU s, in a graph", median(reading[f"31 columns, {OURS}, graph"]), GOAL_ROWS
        ),
        report.at_least("the same, by a loop in Python", median(reading[f"31 columns, {OURS}, loop"]), GOAL_ROWS),
        report.at_least("packing 31 columns at once over by value", median(faster), GOAL_PACKING),
    ]
    report.finish({**reading, **packed}, goals, machine_before=before)


if __name__ == "__main__":
    main()
