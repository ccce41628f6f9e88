"""Workers that come and go in mid-run: how long no step ends, and what a schedule of kills costs.

    python -m benchmarks.changing_workers [--quick] [--part changes|schedule] [--workers N ...] [--changes N]
        [--every SECONDS ...]

A local cluster with an executor of one core for each worker. "MIN..MAX" is `--workers 1..N`; "attempts" is `--workers
N --attempts`, whose workers all start again from the checkpoint of the last epoch. A row takes a worker 25 ms of sleep,
as if it had a core of its own; a step has 12 rows for each of N workers. A worker is killed by SIGKILL, and its task
starts again. Each worker notes when its steps end.

changes: workers are killed at random, each once all N train. "Without a step" is the longest time between the ends of
two steps around the change, less the median of all. For a kill that is any time until the next worker joins, or until
the next kill; for a join it is from a second before to a second after. A step that is repeated has its time in it.

schedule: the seconds of a training with a kill every 30 and every 90 s, over those without kills. Another worker comes
20 s after the kill: whoever starts the cell before waits until then. While all wait, there is no kill.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from support import launch, spark

from .harness import command, report

WORKERS = (2, 3, 4)
CHANGES, QUICK_CHANGES = 20, 2
SCHEDULE_WORKERS, QUICK_SCHEDULE_WORKERS = 4, 2
STEPS, QUICK_STEPS = 600, 120
STEPS_OF_EPOCH = 20
EVERY_SECONDS: tuple[float, ...] = (30.0, 90.0)
QUICK_EVERY_SECONDS: tuple[float, ...] = (15.0,)
COMES_SECONDS = 20.0
ROW_SECONDS, ROWS_OF_WORKER = 0.025, 12
#: Steps whose ends are that close together are one step of several workers.
ONE_STEP_SECONDS = 0.05
START_SECONDS = 120.0
#: How many times as long as without kills a training may take.
GIVEN_UP = 3.0
MAY_LEAVE, ATTEMPTS = "MIN..MAX", "attempts"
GOAL_KILL_SECONDS, GOAL_SCHEDULE = 3.0, 1.15
#: The goal of a schedule is for kills that are so far apart, or farther.
GOAL_EVERY_SECONDS = 90.0

#: Its constants come before it.
CELL = """
import os, time
import keras, numpy as np, tensorflow as tf

try:
    time.sleep(max(0, os.path.getmtime(FOLDER + "/killed") + COMES_SECONDS - time.time()))
except OSError:
    pass

class Compute(keras.layers.Layer):
    def call(self, inputs):
        def wait(rows):
            time.sleep(len(rows) * ROW_SECONDS)
            return rows
        outputs = tf.numpy_function(wait, [inputs], inputs.dtype)
        outputs.set_shape(inputs.shape)
        return outputs

class Clock(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        with open(f"{FOLDER}/steps-{ddl.rank}", "a") as file:
            print(time.time(), file=file)

batch = WORKERS * ROWS_OF_WORKER
x = np.random.default_rng(0).normal(size=(batch * STEPS_OF_EPOCH, 64)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
model = keras.Sequential([keras.Input((64,)), Compute(), keras.layers.Dense(256, "relu"), keras.layers.Dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
model.fit(x, y, batch_size=batch, epochs=EPOCHS, callbacks=[Clock()], verbose=0)
"""

Samples = dict[str, list[float]]


class Training:
    """A run on N workers. folder: where they note their steps."""

    def __init__(self, session: Any, workers: int, way: str, folder: Path, steps: int, comes: float) -> None:
        folder.mkdir(parents=True)
        self._folder, self._workers, self._way = folder, workers, way
        constants = {
            "FOLDER": str(folder),
            "WORKERS": workers,
            "EPOCHS": -(-steps // STEPS_OF_EPOCH),
            "STEPS_OF_EPOCH": STEPS_OF_EPOCH,
            "COMES_SECONDS": comes,
            "ROW_SECONDS": ROW_SECONDS,
            "ROWS_OF_WORKER": ROWS_OF_WORKER,
        }
        cell = "".join(f"{name} = {value!r}\n" for name, value in constants.items()) + CELL
        spec = {"min_workers": 1} if way == MAY_LEAVE else {"attempts": 1000}
        self.run = launch.start(session, cell, workers=workers, **spec)

    def steps(self) -> list[float]:
        """When steps ended, each once."""
        ends: list[float] = []
        for time_ in sorted(float(line) for path in self._folder.glob("steps-*") for line in path.read_text().split()):
            if not ends or time_ - ends[-1] > ONE_STEP_SECONDS:
                ends.append(time_)
        return ends

    def members(self) -> list[int]:
        """The ranks that train; none while they start."""
        if self._way == MAY_LEAVE:
            groups = self.run.of_kind("group")
            return list(groups[-1]["members"]) if groups else []
        return list(range(self._workers))

    def joins(self) -> list[float]:
        """When workers joined."""
        groups = self.run.of_kind("group")
        return [new["time"] for old, new in pairwise(groups) if len(new["members"]) > len(old["members"])]

    def has_stepped_since(self, began: float, count: int) -> bool:
        return sum(each > began for each in self.steps()) >= count

    def kill(self, rank: int) -> float:
        """When it was."""
        (self._folder / "killed").touch()
        os.kill(self.run.pid(rank), signal.SIGKILL)
        return time.time()


def longest(ends: Sequence[float], begin: float, end: float) -> float:
    """The longest time between the ends of two steps, of which a part is between begin and end."""
    return max((b - a for a, b in pairwise(ends) if b > begin and a < end), default=0.0)


def changes(session: Any, workers: int, way: str, count: int, folder: Path, draws: random.Random) -> Samples:
    """{"kill": seconds without a step, "join": the same} of so many kills, and "step": of a step."""
    training = Training(session, workers, way, folder, 1_000_000, 0.0)
    kills: list[float] = []

    def ready(run: Any) -> bool:
        since = max([*kills, *training.joins()], default=0.0)
        return len(training.members()) == workers and training.has_stepped_since(since, 4)

    while len(kills) < count:
        training.run.until(ready, START_SECONDS)
        time.sleep(draws.random())
        kills.append(training.kill(draws.choice(training.members())))
        print(f"{workers} workers, {way}: kill {len(kills)} of {count}", file=sys.stderr)
    training.run.until(ready, START_SECONDS)
    time.sleep(1.0)
    training.run.stopped()
    ends, joins = training.steps(), training.joins()
    calm = median(b - a for a, b in pairwise(ends))
    found: Samples = defaultdict(list)
    found["step"].append(calm)
    for kill, next_kill in pairwise([*kills, ends[-1]]):
        join = next((each for each in joins if kill < each < next_kill), next_kill)
        found["kill"].append(longest(ends, kill, join - 1) - calm)
        if join < next_kill:
            found["join"].append(longest(ends, join - 1, join + 1) - calm)
    return found


def seconds_with_kills(
    session: Any, workers: int, way: str, every: float, steps: int, limit: float, folder: Path, draws: random.Random
) -> float:
    """From the end of the first step to that of the last one; `limit` where it takes longer.

    every: seconds from kill to kill, 0 for none.
    """
    training = Training(session, workers, way, folder, steps, COMES_SECONDS)
    training.run.until(lambda run: training.has_stepped_since(0.0, 1), START_SECONDS)
    began = training.steps()[0]
    due = began + (every or limit)
    while not _over(training.run) and time.time() < began + limit:
        if time.time() >= due:
            due += every
            if training.steps()[-1] > time.time() - 2 * ROWS_OF_WORKER * workers * ROW_SECONDS:
                training.kill(draws.choice(training.members()))
                print(f"{workers} workers, {way}: killed at {time.time() - began:.0f} s", file=sys.stderr)
        time.sleep(0.1)
    if not _over(training.run):
        training.run.stopped()
        return limit
    training.run.finished()
    return training.steps()[-1] - began


def _over(run: Any) -> bool:
    run.poll()
    return bool(run.state in launch.TERMINAL)


def measure(part: Callable[..., Any], workers: int, *arguments: Any) -> Any:
    """part(a session of a cluster of its own, workers, ...)"""
    clusters = spark.Clusters()
    try:
        return part(clusters.get(workers), workers, *arguments)
    finally:
        clusters.stop()


def measure_changes(options: argparse.Namespace, folder: Path) -> tuple[Samples, list[report.Goal]]:
    samples: Samples = {}
    goals = []
    count = options.changes or (QUICK_CHANGES if options.quick else CHANGES)
    for workers in options.workers:
        for way in (MAY_LEAVE, ATTEMPTS):
            found = measure(changes, workers, way, count, folder / f"{workers}-{way}", random.Random(workers))
            samples.update({f"{workers} workers, {way}, {kind}": each for kind, each in found.items()})
        kill, join, step = (samples[f"{workers} workers, {MAY_LEAVE}, {kind}"] for kind in ("kill", "join", "step"))
        goals.append(
            report.at_most(f"{workers} workers: seconds without a step after a kill", median(kill), GOAL_KILL_SECONDS)
        )
        goals.append(report.at_most(f"{workers} workers: the same at a join", median(join), median(step)))
    return samples, goals


def measure_schedule(options: argparse.Namespace, folder: Path) -> tuple[Samples, list[report.Goal]]:
    samples: Samples = {}
    goals = []
    workers, steps = (QUICK_SCHEDULE_WORKERS, QUICK_STEPS) if options.quick else (SCHEDULE_WORKERS, STEPS)
    schedules = options.every or (QUICK_EVERY_SECONDS if options.quick else EVERY_SECONDS)
    for way in (MAY_LEAVE, ATTEMPTS):
        place = folder / f"schedule-{way}"
        limit, draws = 10.0 * steps, random.Random(0)
        alone = measure(seconds_with_kills, workers, way, 0.0, steps, limit, place / "never", draws)
        samples[f"{way}, no kill"] = [alone]
        for every in schedules:
            name, limit = f"{way}, a kill every {every:g} s", GIVEN_UP * alone
            taken = measure(seconds_with_kills, workers, way, every, steps, limit, place / f"{every:g}", draws)
            samples[name] = [taken]
            print(f"{name}: {taken:.0f} s, {alone:.0f} s without", file=sys.stderr)
            if way == MAY_LEAVE and every >= GOAL_EVERY_SECONDS:
                goals.append(report.at_most(f"{name}: times as long as without", taken / alone, GOAL_SCHEDULE))
    return samples, goals


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("changing_workers", __doc__, "few kills, and short trainings")
    parser.add_argument("--part", choices=("changes", "schedule"), default=None, help="both by default")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS, metavar="N", help="of changes; 2 3 4")
    parser.add_argument("--changes", type=int, default=None, metavar="N", help=f"kills of a run; {CHANGES}")
    parser.add_argument("--every", type=float, nargs="+", metavar="SECONDS", help="from kill to kill; 30 90")
    options = parser.parse_args(arguments)
    before = report.machine()
    samples: Samples = {}
    goals: list[report.Goal] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, part in (("changes", measure_changes), ("schedule", measure_schedule)):
            if options.part in (None, name):
                found, of_part = part(options, Path(folder))
                samples.update(found)
                goals += of_part
    print(report.spread(samples, "s"))
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
