"""Reading rows in batches of 256: by the runtime, and by what others use, in thousands of rows per CPU second.

    make bench-env
    python -m benchmarks.peer_feeding [--quick] [--rounds N] [--pause SECONDS]

Each way reads 30 numbers and a label in a process of its own, by a loop in a tf.function where there is one. The
runtime reads a share on the local disk, which is what it makes of a DataFrame, of Parquet and of TFRecord before the
first epoch (benchmarks.file_feeding measures that). child_processes/peer_reader.py says what the others do. A way that
is slow reads fewer rows; a library that is not installed is left out. Each round has every way once, in an order that
changes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from . import data_feeding
from .child_processes import peer_reader
from .harness import command, report
from .harness.json_process import ROOT, JsonProcess, ask, close, cpu_environment, module_command
from .harness.rounds import rotated

BATCH = 256
ROUNDS, QUICK_ROUNDS = 3, 1
QUICK_SHARE = 50
OURS, SLICES, TFRECORD = "ours", "from_tensor_slices", "tf.data, TFRecord"
PETASTORM, DATASETS = "Petastorm, row groups", "Hugging Face datasets"
#: Rows of each way: a round takes some seconds.
ROWS = {OURS: 1_000_000, SLICES: 200_000, TFRECORD: 100_000, PETASTORM: 1_000_000, DATASETS: 10_000}
GROUP_ROWS = 125_000
PETASTORM_PYTHON = ROOT / ".venv-petastorm" / "bin" / "python"
DATASETS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"


def write_parquet(folder: Path, rows: int) -> None:
    import pyarrow
    import pyarrow.parquet

    random = np.random.default_rng(0)
    columns = {name: random.normal(size=rows).astype(np.float32) for name in peer_reader.FEATURES}
    table = pyarrow.table({**columns, peer_reader.LABEL: random.integers(2, size=rows)})
    folder.mkdir()
    pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=GROUP_ROWS)


def write_tfrecord(folder: Path, rows: int) -> None:
    import tensorflow as tf

    values = np.random.default_rng(0).normal(size=(rows, len(peer_reader.FEATURES))).tolist()
    folder.mkdir()
    with tf.io.TFRecordWriter(str(folder / "rows.tfrecord")) as writer:
        for number, row in enumerate(values):
            feature = {
                name: tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
                for name, value in zip(peer_reader.FEATURES, row, strict=True)
            }
            feature[peer_reader.LABEL] = tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 2]))
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def commands() -> dict[str, list[str]]:
    """Of the ways that can be measured here."""
    found = {
        OURS: module_command("share_reader", "ours"),
        SLICES: module_command("share_reader", "slices"),
        TFRECORD: module_command("peer_reader", "tfrecord"),
    }
    for name, way, python in ((PETASTORM, "petastorm", PETASTORM_PYTHON), (DATASETS, "datasets", DATASETS_PYTHON)):
        if python.exists():
            found[name] = module_command("peer_reader", way, python=python)
        else:
            print(f"{name} is left out: make bench-env", file=sys.stderr)
    return found


def write(folder: Path, ways: list[str], share: int) -> dict[str, Path]:
    """The folder of each way."""
    writers: dict[str, Any] = {TFRECORD: write_tfrecord, PETASTORM: write_parquet, DATASETS: write_parquet}
    found = {}
    for name in ways:
        found[name] = folder / name.replace(" ", "_").replace(",", "")
        rows = max(GROUP_ROWS // 100, ROWS[name] // share)
        if name in writers:
            writers[name](found[name], rows)
        else:
            data_feeding.write_share(found[name], rows, len(peer_reader.FEATURES))
    return found


def measure(folders: dict[str, Path], rounds: int, pause: float) -> data_feeding.Samples:
    """{WAY: thousands of rows per CPU second, of each round; "WAY, wall": per second}."""
    samples: data_feeding.Samples = {}
    started = commands()
    readers = {name: JsonProcess(started[name], cpu_environment(one_thread=False)) for name in folders}
    try:
        for number in range(-1, rounds):  # the first round warms up
            for name in rotated(readers, number):
                reading = {"folder": str(folders[name]), "batch": BATCH, "in_graph": True}
                (times,) = ask([readers[name]], reading)
                time.sleep(pause)
                if number >= 0:
                    samples.setdefault(name, []).append(times["rows"] / times["cpu"] / 1e3)
                    samples.setdefault(f"{name}, wall", []).append(times["rows"] / times["seconds"] / 1e3)
            print(f"peers: round {number + 1} of {rounds}", file=sys.stderr)
    finally:
        close(list(readers.values()))
    return samples


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("peer_feeding", __doc__, "few rows, one round")
    command.add_rounds(parser, ROUNDS)
    command.add_pause(parser)
    options = parser.parse_args(arguments)
    before = report.machine()
    with tempfile.TemporaryDirectory() as temporary:
        folders = write(Path(temporary), list(commands()), QUICK_SHARE if options.quick else 1)
        samples = measure(folders, command.rounds(options, ROUNDS, QUICK_ROUNDS), options.pause)
    per_cpu = {name: values for name, values in samples.items() if not name.endswith(", wall")}
    print(report.spread(per_cpu, "k rows/CPU s"), "\n")
    print(report.spread({name: values for name, values in samples.items() if name not in per_cpu}, "k rows/s"), "\n")
    goals = [
        report.at_least(f"rows per CPU second over {name}", median(per_cpu[OURS]) / median(values), 1.0)
        for name, values in per_cpu.items()
        if name != OURS
    ]
    goals.insert(0, report.at_least("k rows per CPU second", median(per_cpu[OURS]), data_feeding.GOAL_ROWS))
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
