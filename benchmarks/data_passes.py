"""What the rows of --data cost until a worker has a batch: out of Spark, in a later run, and of files without Spark.

    python -m benchmarks.data_passes [--quick] [--rounds N] [--pause SECONDS] [--tables NAME ...]

A local cluster with 2 executors of one core; its Spark session exists before. 2 workers read one batch. CPU seconds are
those of the driver, its JVM, the executors and all their processes, from the launch until the run has ended, less those
of a run without data in the same round; seconds are from the launch to the first batch in the later of the two workers,
again less those of the run without data. The tables of data_tables.py are Parquet files. "files" names them in --data,
and ranks read them; the others name a DataFrame of Spark that reads them. Windows have no "files", as Spark brings
their rows in order, and images in PNG are not packed by Arrow. Each round has every variant once, in an order that
changes.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from support import launch, spark

from .data_tables import TABLES
from .harness import command, report
from .harness.rounds import rotated

ROUNDS, QUICK_ROUNDS = 5, 1
QUICK_SHARE = 50
SAMPLE_SECONDS = 0.2
BY_ROWS, BY_ARROW, AGAIN, FILES, NONE = "by rows", "by Arrow", "from the cache", "files", "no data"
GOAL_CPU, GOAL_SECONDS = 0.5, 1.0

CELL = """
import time
next(iter(dataset))
(ddl.rank, time.time())[1]
"""
WITHOUT = """
import time
import tensorflow as tf
next(iter(tf.data.Dataset.from_tensors(0)))
time.time()
"""

Samples = dict[str, list[float]]


class CpuClock:
    """CPU seconds of this process and all that it has started. Ended ones count as they were seen last."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, str], float] = {}
        self._ours, self._reading = {os.getpid()}, threading.Lock()
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        while True:
            self.read()
            time.sleep(SAMPLE_SECONDS)

    def read(self) -> float:
        with self._reading:
            return self._read()

    def _read(self) -> float:
        ticks, stats = os.sysconf("SC_CLK_TCK"), {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:  # it has ended meanwhile
                    continue
                stats[int(entry.name)] = int(fields[1]), fields[19], sum(map(int, fields[11:13])) / ticks
        more = True
        while more:
            found = {pid for pid, (parent, _, _) in stats.items() if parent in self._ours} - self._ours
            self._ours |= found
            more = bool(found)
        self._ours &= stats.keys()
        self._seconds.update({(pid, stats[pid][1]): stats[pid][2] for pid in self._ours})
        return sum(self._seconds.values())


def measured(
    clock: CpuClock, session: Any, data: Any, cache: str | None, options: Mapping[str, Any]
) -> tuple[float, float]:
    """(CPU seconds, seconds to the first batch) of a run. data: a DataFrame, files, or None; options: of it."""
    cpu, began = clock.read(), time.time()
    if data is None:
        ended = launch.run_cell(session, WITHOUT, seconds=600)
    else:
        names = {} if isinstance(data, str) else {"df": data}
        spec = {"data": data if isinstance(data, str) else "df", "label": "y", "cache": cache, **options}
        ended = launch.run_cell(session, CELL, names, 600, batch_size=256, strategy="allreduce", **spec)
    if ended.state != "FINISHED":
        raise SystemExit(f"data_passes: {ended.message}")
    return clock.read() - cpu, ended.result - began


def ways_of(table: str) -> list[str]:
    ways = [BY_ROWS, BY_ARROW, AGAIN, FILES]
    if not TABLES[table].by_arrow:
        ways.remove(BY_ARROW)
    if "order_by" in TABLES[table].options:  # ranks read files without an order
        ways.remove(FILES)
    return ways


def measure(
    session: Any, tables: list[str], share: int, rounds: int, pause: float, folder: str
) -> tuple[Samples, Samples]:
    """{"TABLE, WAY": CPU seconds, and seconds, of each round}, more than a run without data."""
    api = launch.load_driver()
    arrow = importlib.import_module(api.__name__.rpartition(".driver")[0] + ".data.arrow")
    app, clock = session.sparkContext.applicationId, CpuClock()
    cpu: Samples = {}
    seconds: Samples = {}
    for table in tables:
        path = f"{folder}/{table.replace(' ', '_')}"
        frame, kept = TABLES[table].frame(session, path, share), f"{folder}/cache"
        ways = ways_of(table)
        for number in range(-1, rounds):  # the first round warms up, and fills the cache
            found = {}
            for way in rotated((NONE, *ways), number):
                arrow._executors_have_pyarrow[app] = way == BY_ARROW
                data = {NONE: None, FILES: f"file://{path}"}.get(way, frame)
                found[way] = measured(clock, session, data, kept if way == AGAIN else None, TABLES[table].options)
                time.sleep(pause)
            print(f"{table}: round {number + 1} of {rounds}: {found}", file=sys.stderr)
            for way in ways if number >= 0 else ():
                cpu.setdefault(f"{table}, {way}", []).append(found[way][0] - found[NONE][0])
                seconds.setdefault(f"{table}, {way}", []).append(found[way][1] - found[NONE][1])
    return cpu, seconds


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("data_passes", __doc__, "few rows, one round")
    command.add_rounds(parser, ROUNDS)
    command.add_pause(parser)
    command.add_tables(parser, TABLES)
    options = parser.parse_args(arguments)
    before = report.machine()
    share = QUICK_SHARE if options.quick else 1
    rounds = command.rounds(options, ROUNDS, QUICK_ROUNDS)
    clusters = spark.Clusters()
    try:
        with tempfile.TemporaryDirectory() as folder:
            cpu, seconds = measure(clusters.get(2), options.tables, share, rounds, options.pause, folder)
    finally:
        clusters.stop()
    print(report.spread(cpu, "CPU s"), "\n")
    print(report.spread(seconds, "s"), "\n")
    goals = []
    for table in options.tables:
        if BY_ARROW in ways_of(table):
            ratio = median(a / b for a, b in zip(cpu[f"{table}, {BY_ARROW}"], cpu[f"{table}, {BY_ROWS}"], strict=True))
            goals.append(report.at_most(f"{table}: CPU seconds by Arrow over by rows", ratio, GOAL_CPU))
        for way, name in ((AGAIN, "in a later run"), (FILES, "of files")):
            if way not in ways_of(table):
                continue
            later = median(seconds[f"{table}, {way}"])
            goals.append(report.at_most(f"{table}: seconds beyond the start {name}", later, GOAL_SECONDS))
    samples = {**{f"{name}, CPU s": each for name, each in cpu.items()}, **seconds}
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
