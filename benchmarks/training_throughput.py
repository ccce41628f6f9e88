"""Training on workers of one host, compared with Keras, MultiWorkerMirroredStrategy and PyTorch DDP, in images/s.

    python -m benchmarks.b1 [--quick] [--workers N] [--threads pinned|defaults] [--others PYTHON] [--pause SECONDS]

The model is a convolutional network of 694 k parameters for images of 28 x 28, with batches of 64 and of 256 on each
worker. "ours" are ranks with all that they have in a run except Spark; they communicate by shared memory.
"2 x Keras" are as many independent processes of plain Keras. With the compiled optimizer update of our ranks
("2 x Keras, compiled update") they are the upper bound: they never sum a gradient. Those "in lockstep" wait for each
other before each update, as workers that train together must, and exchange nothing. "ours, MIN..MAX" are ranks that may
leave, and none does. MultiWorkerMirrored (tf_keras) and PyTorch DDP over gloo need the environment of `make bench-env`;
DDP is compared with two independent PyTorch processes.

All variants are measured with one thread for operations and one for the graph ("pinned") and jit_compile=False, then
with the number of threads that each starts by default ("defaults"). --threads selects one of the two.

A block is one epoch, timed from its beginning to its metrics. Its samples are the images per second of both workers
together and the CPU time of a step of one worker. In each round every variant has one block of either batch size, and
the order changes. Goals are medians of the ratios within rounds.

If the machine has other work, put `chrt --rr 1` before the command; other processes then run in the --pause after each
block.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .harness import command, report
from .harness.free_ports import free_addresses
from .harness.json_process import CHILDREN, ROOT, JsonProcess, ask, close, cpu_environment, module_command
from .harness.ranks import Ranks
from .harness.rounds import rotated

OTHERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
WORKERS = 2
#: Rows of a worker's batch -> steps of a block. With the default number of threads, threads outnumber the cores and
#: spin while they wait for each other: a step of PyTorch took up to 0.4 s.
STEPS, DEFAULTS_STEPS = {64: 60, 256: 20}, {64: 20, 256: 8}
ROUNDS, DEFAULTS_ROUNDS, QUICK_ROUNDS = 15, 4, 2
PAUSE_SECONDS = 0.2
OURS, PLAIN, COMPILED = "ours", "2 x Keras", "2 x Keras, compiled update"
LOCKSTEP, MAY_LEAVE = "2 x Keras, in lockstep", "ours, MIN..MAX"
MIRRORED, DDP, TORCH = "MultiWorkerMirrored", "PyTorch DDP, gloo", "2 x PyTorch"
KERAS, OTHERS = (OURS, MAY_LEAVE, PLAIN, COMPILED, LOCKSTEP), (MIRRORED, DDP, TORCH)
#: The variants of which both workers train one model.
TOGETHER = (OURS, MAY_LEAVE, MIRRORED, DDP)
DEFAULTS = (OURS, PLAIN, *OTHERS)
#: (rows of a worker's batch, variant to compare with, goal of the ratio)
GOALS = ((64, PLAIN, 1.0), (64, COMPILED, 0.88), (64, MIRRORED, 4.0), (256, PLAIN, 0.97), (256, COMPILED, 0.97))
#: The same where workers outnumber the cores.
CROWDED_GOALS = ((64, PLAIN, 0.95), (256, PLAIN, 0.95))
#: Of ranks that may leave, to those that may not.
MAY_LEAVE_GOAL = 0.99


class Block(NamedTuple):
    """Images per second of all workers together, and milliseconds of CPU time of a step of one worker."""

    images: float
    cpu: float


class Samples(NamedTuple):
    """Variant -> a sample for each round."""

    images: dict[str, list[float]]
    cpu: dict[str, list[float]]


class Team:
    """The processes of a variant. others: a Python with PyTorch and tf_keras. folder: for their files."""

    def __init__(self, name: str, workers: int, pinned: bool, others: Path, folder: Path) -> None:
        self._workers, self._groups = workers, 1 if name in TOGETHER else workers
        environment = cpu_environment(one_thread=pinned)
        if name in (OURS, MAY_LEAVE):
            cell = (CHILDREN / "cnn_keras.py").read_text()
            self._processes = Ranks(cell, workers, folder / name, environment, may_leave=name == MAY_LEAVE).processes
        else:
            self._processes = [JsonProcess(each, environment) for each in _commands(name, workers, others, folder)]

    def block(self, batch: int, steps: int) -> Block:
        """Train so many steps with `batch` rows on each worker."""
        times = ask(self._processes, {"batch": batch * self._workers // self._groups, "steps": steps})
        images = sum(batch * steps / each["seconds"] for each in times)
        return Block(images, 1000 * sum(each["cpu"] for each in times) / steps / self._workers)

    def close(self) -> None:
        close(self._processes)


def _commands(name: str, workers: int, others: Path, folder: Path) -> list[list[str]]:
    """The command line of each worker."""
    ranks = range(workers)
    if name == MIRRORED:
        addresses = free_addresses(workers)
        return [module_command("cnn_keras", "mirrored", rank, *addresses, python=others) for rank in ranks]
    if name == DDP:
        return [module_command("cnn_torch", "ddp", rank, workers, folder / "store", python=others) for rank in ranks]
    if name == TORCH:
        return [module_command("cnn_torch", "alone", python=others) for _ in ranks]
    if name == LOCKSTEP:
        return [module_command("cnn_keras", "lockstep", rank, workers, folder / "lockstep") for rank in ranks]
    return [module_command("cnn_keras", "compiled" if name == COMPILED else "plain") for _ in ranks]


def measure(names: Sequence[str], pinned: bool, rounds: int, options: argparse.Namespace, samples: Samples) -> None:
    """Add a sample of each round to those of every variant."""
    if not names:
        return
    with tempfile.TemporaryDirectory() as folder:
        teams = {name: Team(name, options.workers, pinned, options.others, Path(folder)) for name in names}
        try:
            for number in range(-1, rounds):  # the first round warms up
                measured = _round(teams, number, pinned, options)
                if number < 0:
                    continue
                for name, block in measured.items():
                    samples.images[name].append(block.images)
                    samples.cpu[name].append(block.cpu)
                figures = "; ".join(f"{name} {block.images:.0f}" for name, block in measured.items())
                print(f"round {number + 1} of {rounds}, images/s: {figures}", file=sys.stderr)
        finally:
            for team in teams.values():
                team.close()


def _round(teams: Mapping[str, Team], number: int, pinned: bool, options: argparse.Namespace) -> dict[str, Block]:
    measured = {}
    for batch, steps in (STEPS if pinned else DEFAULTS_STEPS).items():
        for name in rotated(teams, number):
            measured[variant(batch, name, pinned, options.workers)] = teams[name].block(batch, steps)
            time.sleep(options.pause)
    return measured


def variant(batch: int, name: str, pinned: bool = True, workers: int = WORKERS) -> str:
    name = name.replace(f"{WORKERS} x", f"{workers} x")
    return f"batch {batch}, {name}" + ("" if pinned else ", defaults")


def ratio(samples: Mapping[str, list[float]], one: str, other: str) -> float:
    """The median of the ratios within rounds."""
    return median(a / b for a, b in zip(samples[one], samples[other], strict=True))


def goals(images: Mapping[str, list[float]], workers: int) -> list[report.Goal]:
    found = []
    for batch, name, goal in GOALS if workers <= (os.cpu_count() or 1) else CROWDED_GOALS:
        ours, other = (variant(batch, each, workers=workers) for each in (OURS, name))
        if ours in images and other in images:
            name = f"batch {batch}: images/s to those of {name}"
            found.append(report.at_least(name, ratio(images, ours, other), goal))
    for batch in STEPS:
        mine, ours = (variant(batch, each, workers=workers) for each in (MAY_LEAVE, OURS))
        if mine in images and ours in images:
            name = f"batch {batch}: images/s with {MAY_LEAVE} to those with N"
            found.append(report.at_least(name, ratio(images, mine, ours), MAY_LEAVE_GOAL))
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("training_throughput", __doc__, "few rounds, and only with pinned threads")
    parser.add_argument("--others", type=Path, default=OTHERS_PYTHON, help="a Python with PyTorch and tf_keras")
    parser.add_argument("--only", nargs="*", choices=(*KERAS, *OTHERS), metavar="VARIANT", help="some of the variants")
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N", help=f"{WORKERS} by default")
    parser.add_argument("--threads", choices=("pinned", "defaults"), default=None, help="only these rounds")
    parser.add_argument("--rounds", type=int, default=None, help=f"{ROUNDS} by default")
    command.add_pause(parser, PAUSE_SECONDS)
    options = parser.parse_args(arguments)
    has_others = options.others.exists()
    names = [name for name in (*KERAS, *OTHERS) if options.only is None or name in options.only]
    if not has_others:
        names = [name for name in names if name not in OTHERS]
    samples = Samples(defaultdict(list), defaultdict(list))
    if options.threads != "defaults":
        rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
        measure(names, True, rounds, options, samples)
    if options.threads == "defaults" or not (options.quick or options.threads or options.only):
        some = [name for name in names if name in DEFAULTS]
        measure(some, False, options.rounds or DEFAULTS_ROUNDS, options, samples)
    print(report.spread(samples.images, "images/s"))
    print()
    print(report.spread(samples.cpu, "CPU ms/step"))
    if not has_others:
        print("MultiWorkerMirrored and PyTorch were not measured: run `make bench-env` first, or give --others PYTHON")
    for batch, pinned in itertools.product(STEPS, (True, False)):
        one, other = (variant(batch, each, pinned, options.workers) for each in (DDP, TORCH))
        if one in samples.images and other in samples.images:
            print(f"{one}: {ratio(samples.images, one, other):.3g} of {other}")
    report.finish(samples.images, goals(samples.images, options.workers), cpu_ms_per_step=samples.cpu)


if __name__ == "__main__":
    main()
