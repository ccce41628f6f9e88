"""Training on two workers of one host: ours against Keras, TensorFlow's and PyTorch's own ways, in images per second.

    python -m benchmarks.b1 [--quick] [--threads pinned|defaults] [--others PYTHON] [--pause SECONDS]

A convolutional network of 694 k parameters on images of 28 x 28, batches of 64 and of 256 on each worker. Ours are two
ranks' processes with everything that they have in a run, by shared memory; only Spark is not there. They are compared
with two processes that know nothing of each other: of plain Keras, and of Keras with the update of the optimizer that
our ranks compile, which is the most that can be had without ever summing a gradient. MultiWorkerMirrored (tf_keras) and
PyTorch's DistributedDataParallel over gloo, the latter against two PyTorch processes of their own, are there if the
environment of `make bench-env` is.

First all with one thread each for operations and for the graph, and jit_compile=False; then all as they are by default;
--threads takes one of these halves.
A block is an epoch of some steps, timed from its beginning to its metrics; samples are the images per second of both
workers together, and the CPU time of a step of one. In each round every variant has one block of either batch size, in
changing order; goals are medians of the ratios within rounds. On a machine that has other work, `chrt --rr 1` in front
of the command keeps that out of the measurement; in the --pause after each block the others get their turn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from . import ranks, report

HERE = Path(__file__).resolve().parent
OTHERS_PYTHON = HERE.parent / ".venv-bench" / "bin" / "python"
WORKERS = 2
#: Rows of a worker's batch -> steps of a block. With everybody's defaults threads outnumber the cores, and wait for
#: each other spinning: PyTorch's steps have been seen to take 0.4 s.
STEPS, DEFAULTS_STEPS = {64: 60, 256: 20}, {64: 20, 256: 8}
ROUNDS, DEFAULTS_ROUNDS, QUICK_ROUNDS = 15, 4, 2
OURS, PLAIN, FAST = "ours", "2 x Keras", "2 x Keras, compiled update"
MIRRORED, DDP, TORCH = "MultiWorkerMirrored", "PyTorch DDP, gloo", "2 x PyTorch"
#: Also without the threads pinned.
DEFAULTS = (OURS, PLAIN, MIRRORED, DDP, TORCH)
#: (batch, compared with, goal of the ratio)
GOALS = ((64, PLAIN, 1.0), (64, FAST, 0.88), (64, MIRRORED, 4.0), (256, PLAIN, 0.97), (256, FAST, 0.97))
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class Team:
    """The two processes of one variant. pinned: with one thread each."""

    def __init__(self, name: str, pinned: bool, others: Path, folder: Path) -> None:
        self._together = name in (OURS, MIRRORED, DDP)
        environment = {key: value for key, value in os.environ.items() if key not in _THREADS}
        environment.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(HERE.parent))
        if pinned:
            environment.update(dict.fromkeys(_THREADS, "1"))
        if name == OURS:
            cell = (HERE / "cnn_keras.py").read_text()
            self._processes = ranks.Ranks(cell, WORKERS, folder / name, environment).processes
            return
        ports = _ports()
        commands = {
            PLAIN: lambda rank: [sys.executable, "cnn_keras.py", "plain"],
            FAST: lambda rank: [sys.executable, "cnn_keras.py", "fast"],
            MIRRORED: lambda rank: [others, "cnn_keras.py", "mirrored", str(rank), *ports],
            DDP: lambda rank: [others, "cnn_torch.py", "ddp", str(rank), str(WORKERS), str(folder / "store")],
            TORCH: lambda rank: [others, "cnn_torch.py", "alone"],
        }
        self._processes = [
            subprocess.Popen(
                commands[name](rank),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=HERE,
                env=environment,
            )
            for rank in range(WORKERS)
        ]

    def block(self, batch: int, steps: int) -> tuple[float, float]:
        """(images per second of both workers, milliseconds of CPU time of a step of one) with `batch` rows on each."""
        line = json.dumps({"batch": batch * (WORKERS if self._together else 1), "steps": steps})
        for process in self._processes:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in self._processes]
        if not all(answers):
            raise SystemExit("b1: a process ended; what it said is above")
        answers = [json.loads(answer) for answer in answers]
        images = sum(batch * steps / answer["seconds"] for answer in answers)
        return images, 1000 * sum(answer["cpu"] for answer in answers) / steps / WORKERS

    def close(self) -> None:
        for process in self._processes:
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _ports() -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def measure(names: list[str], pinned: bool, options: argparse.Namespace, rounds: int, samples: dict, cpu: dict) -> None:
    """Adds a sample a round to those of every variant."""
    with tempfile.TemporaryDirectory() as folder:
        teams = {name: Team(name, pinned, options.others, Path(folder)) for name in names}
        try:
            for at in range(-1, rounds):  # the first round warms up
                order = names[at % len(names) :] + names[: at % len(names)]
                for batch, steps in (STEPS if pinned else DEFAULTS_STEPS).items():
                    for name in order:
                        images, each = teams[name].block(batch, steps)
                        time.sleep(options.pause)
                        if at >= 0:
                            samples[variant(batch, name, pinned)].append(images)
                            cpu[variant(batch, name, pinned)].append(each)
                if at >= 0:
                    told = [f"{each} {samples[each][-1]:.0f}" for each in samples if len(samples[each]) == at + 1]
                    print(f"round {at + 1} of {rounds}, images/s:", "; ".join(told), flush=True)
        finally:
            for team in teams.values():
                team.close()


def variant(batch: int, name: str, pinned: bool = True) -> str:
    return f"batch {batch}, {name}" + ("" if pinned else ", defaults")


def ratio(samples: dict[str, list[float]], one: str, other: str) -> float:
    """The median of one's samples to the other's of the same round."""
    return median(a / b for a, b in zip(samples[one], samples[other], strict=True))


def goals(samples: dict[str, list[float]]) -> list[report.Goal]:
    found = []
    for batch, name, goal in GOALS:
        if samples.get(variant(batch, name)):
            measured = ratio(samples, variant(batch, OURS), variant(batch, name))
            found.append(report.at_least(f"batch {batch}: images/s to those of {name}", measured, goal))
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.b1", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, and no defaults")
    parser.add_argument("--others", type=Path, default=OTHERS_PYTHON, help="a Python with PyTorch and tf_keras")
    parser.add_argument("--only", nargs="*", default=None, metavar="VARIANT", help="some of the variants")
    parser.add_argument("--threads", choices=("pinned", "defaults"), default=None, help="only these rounds")
    parser.add_argument("--rounds", type=int, default=None, help=f"{ROUNDS} by default")
    parser.add_argument("--pause", type=float, default=0.2, metavar="SECONDS", help="after each block")
    options = parser.parse_args(arguments)
    there = [OURS, PLAIN, FAST] + ([MIRRORED, DDP, TORCH] if options.others.exists() else [])
    names = [name for name in there if options.only is None or name in options.only]
    samples, cpu = defaultdict(list), defaultdict(list)
    if options.threads != "defaults":
        measure(names, True, options, options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS), samples, cpu)
    if options.threads == "defaults" or not (options.quick or options.threads or options.only):
        some = [name for name in names if name in DEFAULTS]
        measure(some, False, options, options.rounds or DEFAULTS_ROUNDS, samples, cpu)
    print(report.spread(samples, "images/s"))
    print()
    print(report.spread(cpu, "CPU ms/step"))
    if len(there) == 3:
        print("no MultiWorkerMirrored and no PyTorch: `make bench-env` makes an environment that has them")
    for batch, pinned in itertools.product(STEPS, (True, False)):
        one, other = variant(batch, DDP, pinned), variant(batch, TORCH, pinned)
        if one in samples and other in samples:
            print(f"{one}: {ratio(samples, one, other):.3g} of {other}")
    report.finish(samples, goals(samples), cpu_ms_per_step=dict(cpu))


if __name__ == "__main__":
    main()
