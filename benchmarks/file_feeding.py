"""What it costs until the rows of files are on the workers: read by the ranks themselves, and through Spark.

    python -m benchmarks.file_feeding [--quick] [--rounds N] [--pause SECONDS]

A local cluster with 2 executors of one core; its session exists before, and has done everything once. The files have a
million rows of 30 numbers and a label. A round has every way once, in an order that changes: from the check of --data
until the shares of 2 ranks are stored. CPU seconds are those of this process, of Spark and of all that they start. Of
TFRecord, a rank decodes with the TensorFlow that it has imported anyway.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from support import spark as local_cluster

import ddl_magics
from ddl_magics.runtime.data import feed, file_feed, file_share, share_files, sources
from ddl_magics.runtime.data.plan import DataPlan
from ddl_magics.runtime.run_spec import RunSpec

from .harness import command, cpu_time, report
from .harness.rounds import rotated

WORKERS = 2
ROWS, QUICK_ROWS = 1_000_000, 20_000
GROUP_ROWS = 125_000
ROUNDS, QUICK_ROUNDS = 5, 1
OWN, SPARK = "the ranks", "through Spark"
GOAL_OF_SPARK = 0.25


def write_files(session: Any, folder: Path, rows: int) -> dict[str, str]:
    """{format: URI}"""
    import pyarrow
    import pyarrow.parquet

    random = np.random.default_rng(0)
    columns = {f"x{k}": random.normal(size=rows).astype(np.float32) for k in range(30)}
    table = pyarrow.table({**columns, "y": random.integers(2, size=rows)})
    pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=GROUP_ROWS)
    uris = {"Parquet": f"file://{folder}/rows.parquet", "TFRecord": f"file://{folder}/rows.tfrecord"}
    ddl_magics.write_tfrecord(session.read.parquet(uris["Parquet"]).repartition(4), uris["TFRecord"])
    return uris


def store_own(session: Any, spec: RunSpec, folder: Path) -> None:
    source = sources.opened(session, spec)
    plan = DataPlan(spec.data, spec, sources.with_frame({}, spec, source))
    files = file_feed.listed(source, spec, plan)
    made = file_feed.prepare(session.sparkContext, plan, "bench", files)
    assert made.manifest["files"], made.notices
    readings = []
    for rank in range(WORKERS):
        scratch = folder / str(rank)
        (scratch / "data").mkdir(parents=True)
        readings.append(file_share.begin(made.manifest, str(scratch), rank, 1))
    for rank, reading in enumerate(readings):
        file_share.finish(
            reading, made.manifest, str(folder / str(rank) / "data"), rank, lambda: False, lambda rows, seconds: None
        )


def store_of_spark(session: Any, spec: RunSpec, folder: Path) -> None:
    frames = sources.with_frame({}, spec, sources.opened(session, spec))
    plan = DataPlan(spec.data, spec, frames)
    made = feed.prepare(session.sparkContext, plan, "bench")
    manifest, place = made.manifest, str(folder)

    def store(rank: int, blobs: Any) -> list[int]:
        share_files.store(blobs, os.path.join(place, str(rank)), manifest, rank)
        return [rank]

    made.rdd.mapPartitionsWithIndex(store).collect()
    made.close()


def measure(session: Any, uris: dict[str, str], rounds: int, pause: float) -> dict[str, list[float]]:
    """{"FORMAT, WAY": CPU seconds of each round, "FORMAT, WAY, wall": seconds}."""
    samples: dict[str, list[float]] = {}
    ways: dict[str, Callable[[Any, RunSpec, Path], None]] = {OWN: store_own, SPARK: store_of_spark}
    variants = [f"{kind}, {way}" for kind in uris for way in ways]
    for number in range(-1, rounds):  # the first round warms up
        for name in rotated(variants, number):
            kind, way = name.split(", ")
            spec = RunSpec(data=uris[kind], label="y", workers=WORKERS, seed=7)
            with tempfile.TemporaryDirectory() as folder:
                cpu, begin = cpu_time.so_far(), time.monotonic()
                ways[way](session, spec, Path(folder))
                spent = cpu_time.so_far() - cpu, time.monotonic() - begin
            time.sleep(pause)
            if number >= 0:
                samples.setdefault(name, []).append(spent[0])
                samples.setdefault(f"{name}, wall", []).append(spent[1])
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return samples


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("file_feeding", __doc__, "few rows, one round")
    command.add_rounds(parser, ROUNDS)
    command.add_pause(parser)
    options = parser.parse_args(arguments)
    import tensorflow  # noqa: F401 - before the first round

    before = report.machine()
    clusters = local_cluster.Clusters()
    session = clusters.get(WORKERS)
    try:
        with tempfile.TemporaryDirectory() as folder:
            uris = write_files(session, Path(folder), QUICK_ROWS if options.quick else ROWS)
            rounds = command.rounds(options, ROUNDS, QUICK_ROUNDS)
            samples = measure(session, uris, rounds, options.pause)
    finally:
        clusters.stop()
    cpu = {name: values for name, values in samples.items() if not name.endswith(", wall")}
    print(report.spread(cpu, "CPU s"), "\n")
    print(report.spread({name: values for name, values in samples.items() if name not in cpu}, "s"), "\n")
    goals = [
        report.at_most(
            f"CPU seconds of the ranks over those of Spark, {kind}",
            float(np.median(np.divide(samples[f"{kind}, {OWN}"], samples[f"{kind}, {SPARK}"]))),
            GOAL_OF_SPARK,
        )
        for kind in uris
    ]
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
