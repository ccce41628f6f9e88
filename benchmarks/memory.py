"""Peak memory of a run's processes, for models of several sizes, beside plain Keras that trains the same.

    python -m benchmarks.memory [--quick] [--megabytes MB ...] [--workers N ...] [--optimizer NAME]

A real Apache Livy with an executor for each worker, all on this machine. A cell trains a dense network of eight equal
layers, whose weights take so many MB, for two epochs. Beside it, as many processes of plain Keras execute the same code
at the same time: on the same rows, with the same optimizer and number of threads, each with its worker's part of a
batch. Keras' process saves nothing; a rank does, as in every run.

Figures are peaks of PSS without files (harness/peak_memory.py). Of the driver, Spark's JVM and its Python are told
apart; what they and the kernel had before is what they have after a small run on the same workers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from livy import rig

from .harness import command, report
from .harness.json_process import JsonProcess, close, cpu_environment, module_command
from .harness.peak_memory import Peaks

MEGABYTES, QUICK_MEGABYTES = (10, 100, 1000), (10,)
WORKERS, QUICK_WORKERS = (1, 2, 4), (2,)
LAYERS, ROWS, BATCH = 8, 192, 32
GOAL_OF_PLAIN, GOAL_COPIES = 1.15, 1.0
#: Of smaller models, what a JVM needs by chance is more than the model.
LEAST_MEGABYTES = 50

KERNEL, DRIVER_PYTHON, DRIVER_JVM, SUPERVISOR = "kernel", "driver, Python", "driver, JVM", "supervisor"
#: In the command lines of the processes.
ROLES = {
    "livy-child": DRIVER_PYTHON,
    "RSCDriverBootstrapper": DRIVER_JVM,
    "CoarseGrainedExecutorBackend": "executor, JVM",
    "pyspark.daemon": SUPERVISOR,
}

_CELL = """\
import keras
import numpy as np

x = np.random.default_rng(0).random(({rows}, 64)).astype("float32")
y = np.arange(len(x)) % 10
network = keras.Sequential([keras.Input((64,)), keras.layers.Dense({width}, "relu")])
for _ in range({layers}):
    network.add(keras.layers.Dense({width}, "relu"))
network.add(keras.layers.Dense(10))
network.compile("{optimizer}", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
network.fit(x, y, batch_size={batch}, epochs=2, verbose=0)
None
"""


def cell(megabytes: float, optimizer: str, ranks: int = 1) -> str:
    """The training. ranks: of a batch, it trains on one of so many parts."""
    width = int((megabytes * 1e6 / 4 / LAYERS) ** 0.5)
    rows, batch = ROWS // ranks, BATCH // ranks
    return _CELL.format(rows=rows, width=width, layers=LAYERS, optimizer=optimizer, batch=batch)


def optimizer_of(megabytes: float) -> str:
    """That of a model of this size: Adam, whose state is twice the model, where it fits into this machine."""
    return "adam" if megabytes < 500 else "sgd"


class Session:
    """A Livy session with a kernel, and its processes."""

    def __init__(self, livy: rig.Livy) -> None:
        self._livy = livy
        self._kernel = JsonProcess(module_command("notebook_kernel", livy.url))
        self._names: dict[int, str | None] = {}
        self._kernel.receive()

    def close(self) -> None:
        close([self._kernel])

    def run(self, source: str, workers: int) -> Peaks:
        """The peaks while it trains. RuntimeError if it fails."""
        with Peaks(self._processes) as peaks:
            self._kernel.send(f"%%distributed --workers {workers} --no-prewarm\n{source}")
            answer = self._kernel.receive()
        if not answer["success"]:
            raise RuntimeError(answer["printed"])
        return peaks

    def _processes(self) -> Mapping[int, str]:
        found = rig.processes(self._livy.state)
        names = {pid: self._names.setdefault(pid, _role(pid, line)) for pid, line in found.items()}
        return {self._kernel.pid: KERNEL, **{pid: name for pid, name in names.items() if name is not None}}


def _role(pid: int, command_line: str) -> str | None:
    """What a process of Livy's is; None of one that is not watched."""
    if "executor.rank_main" in command_line:
        return "rank " + _folder(pid).rpartition("rank-")[2].partition("-")[0].partition("_")[0]
    return next((role for mark, role in ROLES.items() if mark in command_line), None)


def _folder(pid: int) -> str:
    """The temporary folder of a process, which names its rank."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((line.decode() for line in variables if line.startswith(b"TMPDIR=")), "")


@contextmanager
def session(workers: int) -> Iterator[Session]:
    """A new Livy with an executor of one core for each worker. SystemExit if it cannot be started."""
    try:
        livy = rig.start(master=f"local-cluster[{workers},1,1024]")
    except rig.RigError as error:
        raise SystemExit(f"memory: {error}") from None
    try:
        begun = Session(livy)
        try:
            yield begun
        finally:
            begun.close()
    finally:
        livy.stop()


def plain(source: str, processes: int) -> int:
    """The peak of one of so many processes of plain Keras at the same time, in bytes."""
    python = rig.CLUSTER / "bin" / "python"
    started = [
        JsonProcess(module_command("plain_cell", python=python), cpu_environment(one_thread=True))
        for _ in range(processes)
    ]
    try:
        with Peaks(lambda: {process.pid: "plain" for process in started}) as peaks:
            for process in started:
                process.send(source)
            for process in started:
                process.receive()
    finally:
        close(started)
    return peaks.most["plain"]


def measure(megabytes: float, workers: int, optimizer: str) -> dict[str, float]:
    """MB by process: peaks, and with " before" what kernel and driver had before."""
    with session(workers) as begun:
        begun.run(cell(0.1, optimizer), workers)
        peaks = begun.run(cell(megabytes, optimizer), workers)
    measured = {name: size / 1e6 for name, size in peaks.most.items()}
    for name in (KERNEL, DRIVER_PYTHON, DRIVER_JVM):
        measured[f"{name} before"] = peaks.first[name] / 1e6
    measured["plain Keras"] = plain(cell(megabytes, optimizer, workers), workers) / 1e6
    return measured


def goals(case: str, measured: Mapping[str, float], megabytes: float) -> list[report.Goal]:
    """Whether the goals are met in a case."""
    ranks = max(size for name, size in measured.items() if name.startswith("rank "))
    met = [report.at_most(f"{case}: largest rank to plain Keras", ranks / measured["plain Keras"], GOAL_OF_PLAIN)]
    if megabytes >= LEAST_MEGABYTES:
        for name in (DRIVER_PYTHON, DRIVER_JVM):
            copies = (measured[name] - measured[f"{name} before"]) / megabytes
            met.append(report.at_most(f"{case}: {name}, copies of the model", copies, GOAL_COPIES))
    return met


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("memory", __doc__, "a small model, two workers")
    parser.add_argument("--megabytes", type=float, nargs="+", help=f"of weights; {MEGABYTES} by default")
    parser.add_argument("--workers", type=int, nargs="+", help=f"{WORKERS} by default")
    parser.add_argument("--optimizer", help="adam by default, and sgd for models of 500 MB or more")
    options = parser.parse_args(arguments)
    before = report.machine()
    sizes: Sequence[float] = options.megabytes or (QUICK_MEGABYTES if options.quick else MEGABYTES)
    counts: Sequence[int] = options.workers or (QUICK_WORKERS if options.quick else WORKERS)
    samples: dict[str, list[float]] = {}
    met: list[report.Goal] = []
    with tempfile.TemporaryDirectory(prefix="memory-") as folder:
        os.environ["JUPYTER_DATA_DIR"] = folder
        for megabytes in sizes:
            for workers in counts:
                optimizer = options.optimizer or optimizer_of(megabytes)
                case = f"{megabytes:g} MB, {optimizer}, workers {workers}"
                measured = measure(megabytes, workers, optimizer)
                samples |= {f"{case}, {name}": [size] for name, size in measured.items()}
                met += goals(case, measured, megabytes)
                print(f"\n{case}: peaks of PSS\n" + report.table(("", "MB"), sorted(measured.items())), flush=True)
    print()
    report.finish(samples, met, machine_before=before)


if __name__ == "__main__":
    main()
