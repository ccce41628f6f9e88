"""The launch: seconds from running the cell to its first training step, in the first run of a session and in later.

    python -m benchmarks.b6 [--quick]

A local cluster with 2 executors of one core; its Spark session exists before. 2 workers fit a small model. A time is
`time.time` on this one machine, from before the cell is run (as in a terminal's IPython) until Keras begins its first
step in the later of the two processes. The time until the end of that step is reported apart, as Keras traces the model
in it.

It is compared with the least that Spark needs for the same ("bare"): a barrier job whose tasks import TensorFlow and
fit the model in Spark's own Python processes, each for itself. In a later job such a process still has TensorFlow
imported and everything else of the first job. A later run of ours has a fresh process in which TensorFlow is imported
already, the prewarmed process; `--no-prewarm` shows what that saves.

A block is a session, of ours or bare, with its first run and some later ones. Before each later run there is a pause in
which the process is prewarmed. A pair is a block of each, in random order. The goal for the first run is the median of
the differences within pairs.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from support import processes, spark

from ddl_magics.runtime.spark import slots

from .harness import command, report

WORKERS = 2
PAIRS, QUICK_PAIRS = 8, 1
LATER, QUICK_LATER = 3, 1
PAUSE_SECONDS = 5.0
START_SECONDS = 60.0
GOAL_OVER_BARE_SECONDS, GOAL_LATER_SECONDS = 2.0, 1.0

#: The training of both; FOLDER and RANK are replaced. Each process notes when its first step begins and ends.
TRAINING = """
import time
import keras
import numpy as np

class Clock(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.note("begin")
    def on_train_batch_end(self, batch, logs=None):
        self.note("end")
    def note(self, what):
        now = time.time()
        try:
            with open("FOLDER/%s-%s" % (what, RANK), "x") as file:
                file.write(repr(now))
        except FileExistsError:
            pass

x = np.random.default_rng(0).random((256, 28, 28)).astype("float32")
model = keras.Sequential([keras.Input((28, 28)), keras.layers.Flatten(),
                          keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, np.arange(256) % 10, batch_size=64, epochs=1, callbacks=[Clock()], verbose=0)
None
"""


class Launch(NamedTuple):
    """Seconds from running the cell to the begin and to the end of its first step."""

    begin: float
    end: float


class Sessions:
    """One Spark session after the other. folder: where the training notes its times."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._clusters = folder, spark.Clusters()
        self._shell = InteractiveShell.instance()
        self._shell.run_line_magic("load_ext", "ddl_magics")

    def begin(self) -> None:
        """Replace the session by a new one, and wait for its executors."""
        self._clusters.stop()
        session = self._shell.user_ns["spark"] = self._clusters.get(WORKERS)
        _wait_until(lambda: slots.registered_slots(session.sparkContext) == WORKERS)

    def close(self) -> None:
        self._clusters.stop()

    def ours(self, options: str = "") -> Launch:
        """Run the training in a cell with these options."""
        text = TRAINING.replace("FOLDER", str(self._folder)).replace("RANK", "ddl.rank")
        cell = f"%%distributed --workers {WORKERS} {options}\n{text}"

        def run() -> None:
            with capture_output() as printed:
                done = self._shell.run_cell(cell)
            if not done.success:
                raise SystemExit(f"launch_time: the run failed: {printed.stdout}{printed.stderr}")

        return self._timed(run)

    def bare(self) -> Launch:
        """Run the training in a barrier job."""
        text = TRAINING.replace("FOLDER", str(self._folder))

        def fit(_rows: Iterator[int]) -> list[int]:
            from pyspark import BarrierTaskContext

            context = BarrierTaskContext.get()
            context.barrier()
            exec(text.replace("RANK", str(context.partitionId())), {})
            return []

        session = self._shell.user_ns["spark"]
        return self._timed(
            lambda: session.sparkContext.parallelize(range(WORKERS), WORKERS).barrier().mapPartitions(fit).collect()
        )

    def _timed(self, run: Callable[[], object]) -> Launch:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        began = time.time()
        run()
        return Launch(self._latest("begin") - began, self._latest("end") - began)

    def _latest(self, what: str) -> float:
        return max(float((self._folder / f"{what}-{rank}").read_text()) for rank in range(WORKERS))


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"launch_time: the executors were not ready within {START_SECONDS:g} s")
        time.sleep(0.1)


def _block_of_ours(sessions: Sessions, later: int) -> Iterator[tuple[str, Launch]]:
    yield "ours, first run", sessions.ours()
    for _ in range(later):
        time.sleep(PAUSE_SECONDS)
        _wait_until(lambda: len(processes.prewarmed()) == WORKERS)
        yield "ours, later run", sessions.ours()
    yield "ours, later run with --no-prewarm", sessions.ours("--no-prewarm")


def _block_of_bare(sessions: Sessions, later: int) -> Iterator[tuple[str, Launch]]:
    yield "bare, first job", sessions.bare()
    for _ in range(later):
        time.sleep(PAUSE_SECONDS)
        yield "bare, later job", sessions.bare()


def measure(pairs: int, later: int) -> dict[str, list[Launch]]:
    """Variant -> launches."""
    launches: dict[str, list[Launch]] = defaultdict(list)
    processes.start_session()
    with tempfile.TemporaryDirectory(prefix="ddl-launch-") as folder:
        os.environ["JUPYTER_DATA_DIR"] = folder
        sessions = Sessions(Path(folder) / "times")
        try:
            for _ in range(pairs):
                for block in random.sample((_block_of_ours, _block_of_bare), 2):
                    sessions.begin()
                    for variant, launch in block(sessions, later):
                        launches[variant].append(launch)
                        print(f"{variant}: {launch.begin:.2f} s, {launch.end:.2f} s to the step's end", file=sys.stderr)
        finally:
            sessions.close()
    return launches


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    quick = command.parser("launch_time", __doc__, "one pair of blocks").parse_args(arguments).quick
    pairs, later = (QUICK_PAIRS, QUICK_LATER) if quick else (PAIRS, LATER)
    print(report.machine())
    launches = measure(pairs, later)
    begins = {name: [launch.begin for launch in values] for name, values in launches.items()}
    ends = {name: [launch.end for launch in values] for name, values in launches.items()}
    print("Seconds until the first step begins\n" + report.spread(begins, "s"))
    print("\nand until it has ended\n" + report.spread(ends, "s") + "\n")
    over = [ours - bare for ours, bare in zip(begins["ours, first run"], begins["bare, first job"], strict=True)]
    goals = [
        report.at_most("first run over bare, median of the pairs, s", median(over), GOAL_OVER_BARE_SECONDS),
        report.at_most("later run, median, s", median(begins["ours, later run"]), GOAL_LATER_SECONDS),
    ]
    samples = {
        f"{name}, {what}": values for what, of in (("begin", begins), ("end", ends)) for name, values in of.items()
    }
    report.finish(samples, goals, pairs=pairs)


if __name__ == "__main__":
    main()
