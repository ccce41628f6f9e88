"""What the rows of --data cost until a worker has a batch: out of Spark, in a later run, and of files without Spark.

    python -m benchmarks.data_passes [--quick] [--rounds N] [--pause SECONDS] [--tables NAME ...]

A local cluster with 2 executors of one core; its Spark session exists before. 2 workers read one batch. CPU seconds are
those of the driver, its JVM, the executors and all their processes, from the launch until the run has ended, less those
of a run without data in the same round; seconds are from the launch to the first batch in the later of the two workers,
again less those of the run without data. Tables are Parquet files: a million rows of 30 numbers and a label, and 60,000
of an array of 784 numbers. "files" names them in --data, and ranks read them; the others name a DataFrame of Spark that
reads them. Each round has every variant once, in an order that changes.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from support import launch, spark

from .harness import command, report
from .harness.rounds import rotated

ROUNDS, QUICK_ROUNDS = 5, 1
QUICK_SHARE = 50
SAMPLE_SECONDS = 0.2
BY_ROWS, BY_ARROW, AGAIN, FILES, NONE = "by rows", "by Arrow", "from the cache", "files", "no data"
#: Of a table: rows, and the expressions of its columns.
TABLES = {
    "31 columns": (1_000_000, [f"cast(rand({k}) as float) x{k}" for k in range(30)]),
    "784 pixels": (60_000, ["transform(sequence(1, 784), k -> cast(id % 255 + k as float)) pixels"]),
}
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


def measured(clock: CpuClock, session: Any, data: Any, cache: str | None) -> tuple[float, float]:
    """(CPU seconds, seconds to the first batch) of a run. data: a DataFrame, the URI of files, or None."""
    cpu, began = clock.read(), time.time()
    if data is None:
        ended = launch.run_cell(session, WITHOUT, seconds=600)
    else:
        named = {"data": data} if isinstance(data, str) else {"data": "df"}
        names = {} if isinstance(data, str) else {"df": data}
        ended = launch.run_cell(
            session, CELL, names, 600, label="y", batch_size=256, cache=cache, strategy="allreduce", **named
        )
    if ended.state != "FINISHED":
        raise SystemExit(f"data_passes: {ended.message}")
    return clock.read() - cpu, ended.result - began


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
        rows, columns = TABLES[table]
        path = f"{folder}/{table.replace(' ', '_')}"
        session.range(0, rows // share, 1, 4).selectExpr(*columns, "cast(id % 2 as int) y").write.parquet(path)
        frame = session.read.parquet(path)
        kept = f"{folder}/cache"
        for number in range(-1, rounds):  # the first round warms up, and fills the cache
            found = {}
            for way in rotated((NONE, BY_ROWS, BY_ARROW, AGAIN, FILES), number):
                arrow._known[app] = way == BY_ARROW
                data = {NONE: None, FILES: f"file://{path}"}.get(way, frame)
                found[way] = measured(clock, session, data, kept if way == AGAIN else None)
                time.sleep(pause)
            print(f"{table}: round {number + 1} of {rounds}: {found}", file=sys.stderr)
            for way in (BY_ROWS, BY_ARROW, AGAIN, FILES) if number >= 0 else ():
                cpu.setdefault(f"{table}, {way}", []).append(found[way][0] - found[NONE][0])
                seconds.setdefault(f"{table}, {way}", []).append(found[way][1] - found[NONE][1])
    return cpu, seconds


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("data_passes", __doc__, "few rows, one round")
    command.add_rounds(parser, ROUNDS)
    command.add_pause(parser)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES), help="both by default")
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
        ratio = median(a / b for a, b in zip(cpu[f"{table}, {BY_ARROW}"], cpu[f"{table}, {BY_ROWS}"], strict=True))
        goals.append(report.at_most(f"{table}: CPU seconds by Arrow over by rows", ratio, GOAL_CPU))
        for way, name in ((AGAIN, "in a later run"), (FILES, "of files")):
            later = median(seconds[f"{table}, {way}"])
            goals.append(report.at_most(f"{table}: seconds beyond the start {name}", later, GOAL_SECONDS))
    samples = {**{f"{name}, CPU s": each for name, each in cpu.items()}, **seconds}
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
