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
the differences within pairs. The phases of our runs are read from their events.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from support import processes, spark

from ddl_magics.runtime.spark import slots

from .harness import command, report

WORKERS = 2
PAIRS, QUICK_PAIRS = 8, 1
LATER, QUICK_LATER = 3, 1
PAUSE_SECONDS = 5.0
START_SECONDS = 120.0
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


#: The same in a barrier job of the session `spark`.
BARE = f"""
def fit(rows):
    from pyspark import BarrierTaskContext
    context = BarrierTaskContext.get()
    context.barrier()
    exec({{text!r}}.replace("RANK", str(context.partitionId())), {{{{}}}})
    return []
spark.sparkContext.parallelize(range({WORKERS}), {WORKERS}).barrier().mapPartitions(fit).collect()
"""


#: What ends the phases of a run, until its cell is running: an event's kind and state.
PHASES = {
    "the driver has it": ("state", "PREFLIGHT"),
    "Spark has it": ("state", "SUBMITTED"),
    "processes": ("worker", "starting"),
    "their addresses": ("worker", "loading TensorFlow"),
    "TensorFlow": ("worker", "running"),
}


class Launch(NamedTuple):
    """Seconds from running the cell to the begin and to the end of its first step.

    Attributes:
        load: of the machine in the minute before.
        phases: seconds of each, of a run of ours.
    """

    begin: float
    end: float
    load: float
    phases: Mapping[str, float] | None = None


def phases(events: Iterable[Mapping[str, Any]], began: float, begin: float) -> dict[str, float]:
    """The seconds of each phase of a run that began at `began` (time.time); a phase ends with the last rank's event."""
    ends = {
        name: max(event["time"] for event in events if (event["kind"], event.get("state")) == mark)
        for name, mark in PHASES.items()
    }
    times = [began, *ends.values(), began + begin]
    return dict(zip([*ends, "the cell, to its first step"], (b - a for a, b in itertools.pairwise(times)), strict=True))


class Sessions:
    """One Spark session after the other. folder: where the training notes its times. settings: of Spark."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder, self._settings = folder, settings
        self.shell = InteractiveShell.instance()
        self.shell.run_line_magic("load_ext", "ddl_magics")

    def begin(self) -> None:
        """Replace the session by a new one, and wait for its executors."""
        self.close()
        session = self.shell.user_ns["spark"] = spark.session(WORKERS, **self._settings)
        wait_until(lambda: slots.registered_slots(session.sparkContext) == WORKERS)

    def close(self) -> None:
        """End the session, if there is one."""
        session = self.shell.user_ns.pop("spark", None)
        if session is not None:
            session.stop()

    def ours(self, options: str = "") -> Launch:
        """Run the training in a cell with these options."""
        text = TRAINING.replace("FOLDER", str(self._folder)).replace("RANK", "ddl.rank")
        cell = f"%%distributed --workers {WORKERS} --name launched {options}\n{text}"

        def run() -> None:
            with capture_output() as printed:
                done = self.shell.run_cell(cell)
            if not done.success:
                raise SystemExit(f"the run failed: {printed.stdout}{printed.stderr}")

        launch = self._timed(run)
        events = self.shell.user_ns["launched"].events
        return launch._replace(phases=phases(events, self._began, launch.begin))

    def bare(self) -> Launch:
        """Run the training in a barrier job."""
        code = BARE.format(text=TRAINING.replace("FOLDER", str(self._folder)))
        return self._timed(lambda: self._execute(code))

    def _execute(self, code: str) -> None:
        """Run code where the session is. Functions of `__main__` travel to the executors."""
        exec(code, {"spark": self.shell.user_ns["spark"], "__name__": "__main__"})

    def _timed(self, run: Callable[[], object]) -> Launch:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self._began = time.time()
        run()
        begin, end = (self._latest(what) - self._began for what in ("begin", "end"))
        return Launch(begin, end, os.getloadavg()[0])

    def _latest(self, what: str) -> float:
        return max(float((self._folder / f"{what}-{rank}").read_text()) for rank in range(WORKERS))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for executors, or for their prewarmed processes."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"the executors were not ready within {START_SECONDS:g} s")
        time.sleep(0.1)


def _block_of_ours(sessions: Sessions, later: int) -> Iterator[tuple[str, Launch]]:
    yield "ours, first run", sessions.ours()
    for _ in range(later):
        time.sleep(PAUSE_SECONDS)
        wait_until(lambda: len(processes.prewarmed()) == WORKERS)
        yield "ours, later run", sessions.ours()


def _block_without_prewarming(sessions: Sessions, later: int) -> Iterator[tuple[str, Launch]]:
    yield from _block_of_ours(sessions, later)
    yield "ours, later run with --no-prewarm", sessions.ours("--no-prewarm")


def _block_of_bare(sessions: Sessions, later: int) -> Iterator[tuple[str, Launch]]:
    yield "bare, first job", sessions.bare()
    for _ in range(later):
        time.sleep(PAUSE_SECONDS)
        yield "bare, later job", sessions.bare()


def measure(
    kinds: Mapping[str, Sessions], rounds: int, later: int, no_prewarm: bool = False
) -> Iterator[tuple[str, Launch]]:
    """(variant, launch) as they come. A round has a block of ours and a bare one of each kind.

    Args:
        kinds: the beginning of a variant's name -> its sessions.
        rounds: how many.
        later: runs of a block besides its first one.
        no_prewarm: have a last one with --no-prewarm.
    """
    ours = _block_without_prewarming if no_prewarm else _block_of_ours
    blocks = [(kind, block) for kind in kinds for block in (ours, _block_of_bare)]
    for _ in range(rounds):
        for kind, block in random.sample(blocks, len(blocks)):
            try:
                kinds[kind].begin()
                for variant, launch in block(kinds[kind], later):
                    times = f"{launch.begin:.2f} s, {launch.end:.2f} s to the step's end"
                    print(f"{kind}{variant}: {times}; load {launch.load:.1f}", file=sys.stderr)
                    yield kind + variant, launch
            finally:
                kinds[kind].close()


def by_variant(measured: Iterable[tuple[str, Launch]]) -> dict[str, list[Launch]]:
    """Variant -> launches."""
    launches: dict[str, list[Launch]] = defaultdict(list)
    for variant, launch in measured:
        launches[variant].append(launch)
    return launches


def tables(launches: Mapping[str, list[Launch]]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Print what was measured; returns the seconds to the begin, and to the end, of the first step by variant."""
    begins = {name: [launch.begin for launch in values] for name, values in launches.items()}
    ends = {name: [launch.end for launch in values] for name, values in launches.items()}
    print("Seconds until the first step begins\n" + report.spread(begins, "s"))
    print("\nand until it has ended\n" + report.spread(ends, "s"))
    ours = {name: [launch.phases for launch in values if launch.phases] for name, values in launches.items()}
    ours = {name: of for name, of in ours.items() if of}
    rows = [(name, *(median(each[phase] for each in of) for phase in of[0])) for name, of in ours.items()]
    names = next(iter(ours.values()))[0]
    print("\nWhere the seconds go, medians\n" + report.table(("until", *names), rows) + "\n")
    return begins, ends


def samples(begins: Mapping[str, list[float]], ends: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Of the line of JSON."""
    return {f"{name}, {what}": values for what, of in (("begin", begins), ("end", ends)) for name, values in of.items()}


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    quick = command.parser("launch_time", __doc__, "one pair of blocks").parse_args(arguments).quick
    pairs, later = (QUICK_PAIRS, QUICK_LATER) if quick else (PAIRS, LATER)
    before = report.machine()
    print(before)
    processes.start_session()
    with tempfile.TemporaryDirectory(prefix="ddl-launch-") as folder:
        os.environ["JUPYTER_DATA_DIR"] = folder
        kinds = {"": Sessions(Path(folder) / "times")}
        begins, ends = tables(by_variant(measure(kinds, pairs, later, no_prewarm=True)))
    over = [ours - bare for ours, bare in zip(begins["ours, first run"], begins["bare, first job"], strict=True)]
    goals = [
        report.at_most("first run over bare, median of the pairs, s", median(over), GOAL_OVER_BARE_SECONDS),
        report.at_most("later run, median, s", median(begins["ours, later run"]), GOAL_LATER_SECONDS),
    ]
    report.finish(samples(begins, ends), goals, pairs=pairs, machine_before=before)


if __name__ == "__main__":
    main()
