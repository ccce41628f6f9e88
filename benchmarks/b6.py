"""The launch: from running the cell to its first training step, in the first run of a session and in later ones.

    python -m benchmarks.b6 [--quick]

A local cluster of 2 executors of one core, whose Spark session is there before, and 2 workers that fit the same small
model. Measured is `time.time` on this one machine, from before the cell is run to the moment when Keras begins its
first step in the later of the two processes; to the end of that step is a row of its own, as it has Keras trace the
model. The cell runs as in a terminal's IPython.

The peer is the least that Spark needs for the same: a barrier job whose tasks import TensorFlow and fit the model in
Spark's own Python process, each for itself. In a later job its process has TensorFlow imported and everything else that
the first has left there; ours gives the cell a fresh one, the spare, and `--no-spare` shows what that saves.

A block is a session of ours or of the peer's, with its first run and some more; a pause before each of those lets a
person's time pass, in which the spare is made. The order of blocks changes. The goal for the first run is the median of
the differences between neighbouring blocks.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

import processes
import spark
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from ddl_magics.runtime import slots

from . import report

WORKERS = 2
PAIRS, QUICK_PAIRS = 8, 1
LATER, QUICK_LATER = 3, 1
PAUSE_SECONDS = 5.0
START_SECONDS = 60.0
GOAL_OVER_BARE_SECONDS, GOAL_LATER_SECONDS = 2.0, 1.0

#: Run by both; FOLDER and RANK are put in. Each process notes when its first step begins and ends.
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


class Sessions:
    """Spark sessions, one after the other, and what is run in them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._clusters = folder, spark.Clusters()
        self._shell = InteractiveShell.instance()
        self._shell.run_line_magic("load_ext", "ddl_magics")

    def begin(self) -> None:
        self._clusters.stop()
        session = self._shell.user_ns["spark"] = self._clusters.get(WORKERS)
        _until(lambda: slots.ready(session.sparkContext) == WORKERS)

    def close(self) -> None:
        self._clusters.stop()

    def ours(self, options: str = "") -> tuple[float, float]:
        """Seconds from running the cell to the begin and the end of its first step."""
        text = TRAINING.replace("FOLDER", str(self._folder)).replace("RANK", "ddl.rank")
        cell = f"%%distributed --workers {WORKERS} {options}\n{text}"

        def run() -> None:
            with capture_output() as said:
                done = self._shell.run_cell(cell)
            if not done.success:
                raise SystemExit(f"b6: the run failed: {said.stdout}{said.stderr}")

        return self._timed(run)

    def bare(self) -> tuple[float, float]:
        """The same for a barrier job that fits the model in Spark's own processes."""
        text = TRAINING.replace("FOLDER", str(self._folder))

        def fit(_rows):
            from pyspark import BarrierTaskContext

            context = BarrierTaskContext.get()
            context.barrier()
            exec(text.replace("RANK", str(context.partitionId())), {})
            return []

        session = self._shell.user_ns["spark"]
        return self._timed(
            lambda: session.sparkContext.parallelize(range(WORKERS), WORKERS).barrier().mapPartitions(fit).collect()
        )

    def _timed(self, run: Callable[[], object]) -> tuple[float, float]:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        began = time.time()
        run()
        begin, end = (
            max(float((self._folder / f"{what}-{rank}").read_text()) for rank in range(WORKERS)) - began
            for what in ("begin", "end")
        )
        return begin, end


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("b6: the cluster did not start")
        time.sleep(0.1)


def _block_of_ours(sessions: Sessions, later: int, note: Callable[[str, tuple[float, float]], None]) -> None:
    note("ours, first run", sessions.ours())
    for _ in range(later):
        time.sleep(PAUSE_SECONDS)
        _until(lambda: len(processes.spares()) == WORKERS)
        note("ours, later run", sessions.ours())
    note("ours, later run with --no-spare", sessions.ours("--no-spare"))


def _block_of_bare(sessions: Sessions, later: int, note: Callable[[str, tuple[float, float]], None]) -> None:
    note("bare, first job", sessions.bare())
    for _ in range(later):
        time.sleep(PAUSE_SECONDS)
        note("bare, later job", sessions.bare())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.b6", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one pair of blocks")
    quick = parser.parse_args().quick
    pairs, later = (QUICK_PAIRS, QUICK_LATER) if quick else (PAIRS, LATER)
    begins: dict[str, list[float]] = defaultdict(list)
    ends: dict[str, list[float]] = defaultdict(list)

    def note(variant: str, times: tuple[float, float]) -> None:
        begins[variant].append(times[0])
        ends[variant].append(times[1])
        print(f"{variant}: {times[0]:.2f} s, {times[1]:.2f} s to the step's end", file=sys.stderr)

    print(report.machine())
    processes.start_session()
    with tempfile.TemporaryDirectory(prefix="ddl-b6-") as folder:
        os.environ["JUPYTER_DATA_DIR"] = folder
        sessions = Sessions(Path(folder) / "times")
        try:
            for _ in range(pairs):
                for block in random.sample((_block_of_ours, _block_of_bare), 2):
                    sessions.begin()
                    block(sessions, later, note)
        finally:
            sessions.close()

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
