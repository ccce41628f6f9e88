"""What it costs to get rows out of Spark: --data, and what else one could do, in CPU seconds and seconds.

    python -m benchmarks.out_of_spark [--quick] [--rounds N] [--pause SECONDS] [--tables NAME ...]

A local cluster with 2 executors of one core. DataFrames are the tables of data_tables.py, read from Parquet files.
"ours" ends when the shares of 2 ranks are stored on the disk, dealt evenly and mixed; "packed" when the rows are packed
and counted. "by value" is what it was before rows were packed many at once. The others end sooner: Rows that nobody
uses; rows as lists, and NumPy arrays of 256 of them, as trainers on RDDs made them; mapInArrow to NumPy arrays; Spark
that writes Parquet; toPandas with Arrow, which has all rows in the driver. CPU seconds are those of this process, of
Spark and of all that they start. Arrow and NumPy do not take all tables. Then ours with 8 partitions, and with many of
100 rows. Each round has every way once, in an order that changes; the first one warms up.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from support import spark as local_cluster

from ddl_magics.runtime.data import arrow, by_value, feed, share_files
from ddl_magics.runtime.data.plan import DataPlan
from ddl_magics.runtime.run_spec import RunSpec

from .data_tables import LABEL, TABLES
from .harness import command, cpu_time, report
from .harness.rounds import rotated

WORKERS = 2
QUICK_SHARE = 50
PARTITIONS, QUICK_PARTITIONS = 10_000, 100
PARTITION_ROWS = 100
BATCH = 256
ROUNDS, QUICK_ROUNDS = 2, 1
BY_ARROW, BY_ROWS, AS_BEFORE = "ours, Arrow", "ours, rows", "ours, by value"
TO_NUMPY, IN_ARROW, TO_PANDAS = "rows to NumPy", "mapInArrow", "toPandas, Arrow"
FEW, MANY = "8 partitions", "many partitions"
#: Of CPU seconds, over those of "by value".
GOALS = {BY_ARROW: 0.5, BY_ROWS: 0.85}
GOAL_IMAGES_BY_ARROW = 0.3
GOAL_SECONDS = 10.0
#: What a table has not: NumPy makes no numbers of vectors and PNG, nor does Spark give vectors to pandas as Arrow.
WITHOUT_WAYS = {"784 pixels, vectors": {IN_ARROW, TO_NUMPY, TO_PANDAS}, "784 pixels, PNG": {IN_ARROW, TO_NUMPY}}

Samples = dict[str, list[float]]


def ours(session: Any, folder: Path, way: str, of_data: Mapping[str, Any], frame: Any) -> float:
    """Store the shares of --data. The moment when the rows were packed."""
    arrow._executors_have_pyarrow[session.sparkContext.applicationId] = way == BY_ARROW
    functions_of = by_value.functions_of

    def of_before(module: Any) -> dict[str, Any]:
        functions = functions_of(module)
        functions["at_once"] = functions["matrix_at_once"] = eval("lambda *_: None", functions)
        return functions

    options = {"data": "df", "label": "y", "workers": WORKERS, "strategy": "allreduce", "seed": 7, **of_data}
    by_value.functions_of = of_before if way == AS_BEFORE else functions_of
    try:
        plan = DataPlan("df", RunSpec.from_record(options), {"df": frame})
        made = feed.prepare(session.sparkContext, plan, "bench")
    finally:
        by_value.functions_of = functions_of
    packed, manifest, place = time.monotonic(), made.manifest, str(folder)

    def store(rank: int, blobs: Any) -> list[int]:
        share_files.store(blobs, os.path.join(place, str(rank)), manifest, rank)
        return [rank]

    made.rdd.mapPartitionsWithIndex(store).collect()
    made.close()
    return packed


def rows_alone(frame: Any) -> None:
    frame.rdd.foreachPartition(lambda rows: sum(1 for _ in rows))


def rows_to_batches(frame: Any) -> None:
    size = BATCH

    def batches(rows: Iterator[Any]) -> None:
        rows = ([*row[:-1]] for row in rows)
        while len(np.array(list(itertools.islice(rows, size)), np.float32)):
            pass

    frame.rdd.foreachPartition(batches)


def in_arrow(frame: Any) -> None:
    def arrays(batches: Any) -> Iterator[Any]:
        for batch in batches:
            flat = [column.flatten() if hasattr(column, "flatten") else column for column in batch.columns[:-1]]
            np.stack([values.to_numpy() for values in flat], axis=1)
        yield from ()

    frame.mapInArrow(arrays, frame.schema).count()


def ways(session: Any, folder: Path, table: str) -> dict[str, Callable[[Any], Any]]:
    """Of each way, what it does with a table's DataFrame."""
    of_data = TABLES[table].options
    found: dict[str, Callable[[Any], Any]] = {
        **{way: partial(ours, session, folder, way, of_data) for way in (BY_ARROW, BY_ROWS, AS_BEFORE)},
        "Rows alone": rows_alone,
        TO_NUMPY: rows_to_batches,
        IN_ARROW: in_arrow,
        "Parquet": lambda frame: frame.write.parquet(str(folder / "parquet")),
        TO_PANDAS: lambda frame: frame.toPandas(),
    }
    return {way: do for way, do in found.items() if way not in without(table)}


def without(table: str) -> set[str]:
    """The ways that a table has not."""
    return WITHOUT_WAYS.get(table, set()) | (set() if TABLES[table].by_arrow else {BY_ARROW})


def measure(session: Any, table: str, frame: Any, rounds: int, pause: float) -> tuple[Samples, Samples]:
    """({WAY: CPU seconds of each round}, {WAY: seconds})."""
    cpu: Samples = {}
    seconds: Samples = {}
    names = list(ways(session, Path(), table))
    for number in range(-1, rounds):
        for name in rotated(names, number):
            folder = Path(tempfile.mkdtemp())
            spent, begin = cpu_time.so_far(), time.monotonic()
            packed = ways(session, folder, table)[name](frame)
            spent, ended = cpu_time.so_far() - spent, time.monotonic()
            shutil.rmtree(folder)
            time.sleep(pause)
            if number >= 0:
                cpu.setdefault(name, []).append(spent)
                seconds.setdefault(name, []).append(ended - begin)
                if isinstance(packed, float):
                    seconds.setdefault(f"{name}, packed", []).append(packed - begin)
        print(f"out of Spark: round {number + 1} of {rounds}", file=sys.stderr)
    return cpu, seconds


def measure_partitions(session: Any, partitions: int) -> dict[str, list[float]]:
    """{WAY: seconds}"""
    rows = partitions * PARTITION_ROWS
    columns = [*TABLES["31 columns"].columns, LABEL]
    seconds = {}
    for name, count in ((FEW, 8), (MANY, partitions)):
        frame = session.range(0, rows, 1, count).selectExpr(*columns)
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            ours(session, Path(folder), BY_ARROW, {}, frame)
            seconds[name] = [time.monotonic() - begin]
    return seconds


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("out_of_spark", __doc__, "few rows, one round")
    command.add_rounds(parser, ROUNDS)
    command.add_pause(parser)
    command.add_tables(parser, TABLES)
    options = parser.parse_args(arguments)
    before = report.machine()
    importlib.import_module("pyarrow")
    clusters = local_cluster.Clusters()
    session = clusters.get(WORKERS)
    session.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    cpu: Samples = {}
    seconds: Samples = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for table in options.tables:
                path = str(Path(folder) / table.replace(" ", "_"))
                frame = TABLES[table].frame(session, path, QUICK_SHARE if options.quick else 1)
                found = measure(session, table, frame, command.rounds(options, ROUNDS, QUICK_ROUNDS), options.pause)
                for samples, own in zip((cpu, seconds), found, strict=True):
                    samples.update({f"{table}, {way}": values for way, values in own.items()})
            partitions = QUICK_PARTITIONS if options.quick else PARTITIONS
            by_partitions = measure_partitions(session, partitions)
    finally:
        clusters.stop()
    print(report.spread(cpu, "CPU s"), "\n")
    print(report.spread({**seconds, **by_partitions}, "s"), "\n")
    goals = []
    for table in options.tables:
        before_that = median(cpu[f"{table}, {AS_BEFORE}"])
        for way in GOALS.keys() - without(table):
            goal = GOAL_IMAGES_BY_ARROW if (way, table) == (BY_ARROW, "784 pixels") else GOALS[way]
            name = f"{table}: CPU seconds of {way} over {AS_BEFORE}"
            goals.append(report.at_most(name, median(cpu[f"{table}, {way}"]) / before_that, goal))
    more = by_partitions[MANY][0] - by_partitions[FEW][0]
    goals.append(report.at_most(f"seconds of {partitions} partitions more than of 8", more, GOAL_SECONDS))
    all_samples = {**{f"{name}, CPU s": each for name, each in cpu.items()}, **seconds, **by_partitions}
    report.finish(all_samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
