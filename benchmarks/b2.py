"""All-reduce of 1 to 256 MB on one host, among 2 and 4 processes: shared memory, TCP over loopback, and gloo.

    python -m benchmarks.b2 [--quick] [--gloo PYTHON] [--pause SECONDS]

All processes of all variants live from the beginning and wait on a pipe but for those whose turn it is. A block is a
number of all-reduces of one size in a row; its sample is the mean time of one on rank 0. In each round every variant
has one block of every size, in changing order, so that a disturbance meets all alike; goals are medians of the ratios
within rounds. GB/s are bytes of the buffer by time. Each process sums float32 in place, in a buffer of its own that it
has filled
before: what a caller of torch.distributed.all_reduce has too. The first sum is checked by value.

On a machine that has other work, `chrt --rr 1` in front of the command, and a --pause after each block in which the
others get their turn, keep that out of the measurement.

gloo is that of PyTorch's, in an environment of its own: `make bench-env` makes it (PyTorch is a large download).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from . import report

HERE = Path(__file__).resolve().parent
GLOO_PYTHON = HERE.parent / ".venv-bench" / "bin" / "python"
PROCESSES = (2, 4)
MEGABYTES = (1, 3, 16, 64, 256)
OURS = ("shared memory", "tcp")
#: Of data that a block moves, at least one all-reduce.
BLOCK_BYTES = 256 << 20
ROUNDS, QUICK_ROUNDS = 15, 3


class Team:
    """The processes of one variant."""

    def __init__(self, transport: str, processes: int, python: str | Path, folder: str) -> None:
        script, store = HERE / "allreduce_process.py", Path(folder) / f"{transport}-{processes}"
        self._processes = [
            subprocess.Popen(
                [python, script, transport, str(rank), str(processes), str(store)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(processes)
        ]

    def block(self, megabytes: int, repeat: int) -> float:
        """Seconds of one all-reduce, as rank 0 sees it."""
        for process in self._processes:
            process.stdin.write(json.dumps({"bytes": megabytes << 20, "repeat": repeat}) + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in self._processes]
        if not all(answers):
            raise SystemExit("b2: a process ended; what it said is above")
        return json.loads(answers[0]) / repeat

    def close(self) -> None:
        for process in self._processes:
            process.stdin.close()
        for process in self._processes:
            process.wait(30)
            process.stdout.close()


def measure(gloo: Path | None, sizes: tuple[int, ...], rounds: int, pause: float) -> dict[str, list[float]]:
    """Seconds of an all-reduce, by variant ("2 processes, 3 MB, tcp"), a sample a round."""
    samples = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for processes in PROCESSES:
            teams = {transport: Team(transport, processes, sys.executable, folder) for transport in OURS}
            if gloo is not None:
                teams["gloo"] = Team("gloo", processes, gloo, folder)
            for at in range(-1, rounds):  # the first round warms up
                for megabytes in sizes:
                    order = list(teams)
                    for transport in order[at % len(order) :] + order[: at % len(order)]:
                        repeat = max(1, BLOCK_BYTES // (megabytes << 20) // 2)
                        seconds = teams[transport].block(megabytes, repeat)
                        time.sleep(pause)
                        if at >= 0:
                            samples[variant(processes, megabytes, transport)].append(seconds)
            for team in teams.values():
                team.close()
    return samples


def variant(processes: int, megabytes: int, transport: str) -> str:
    return f"{processes} processes, {megabytes} MB, {transport}"


def goals(samples: dict[str, list[float]], sizes: tuple[int, ...]) -> list[report.Goal]:
    """Median ratios of gloo's time to ours."""
    found = []
    for processes in PROCESSES:
        for megabytes in sizes:
            theirs = samples[variant(processes, megabytes, "gloo")]
            for transport, goal in {"shared memory": 4.0, "tcp": 1.3 if processes == 2 else 1.0}.items():
                if transport == "shared memory" and megabytes < 3:
                    continue
                ours = samples[variant(processes, megabytes, transport)]
                ratio = median(their / our for their, our in zip(theirs, ours, strict=True))
                name = f"{variant(processes, megabytes, transport)}: times as fast as gloo"
                found.append(report.at_least(name, ratio, goal))
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.b2", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, and no 256 MB")
    parser.add_argument("--gloo", type=Path, default=GLOO_PYTHON, help="a Python that has PyTorch (.venv-bench)")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="after each block")
    options = parser.parse_args(arguments)
    sizes = MEGABYTES[:-1] if options.quick else MEGABYTES
    gloo = options.gloo if options.gloo.exists() else None
    samples = measure(gloo, sizes, QUICK_ROUNDS if options.quick else ROUNDS, options.pause)
    speeds = {name: [_size(name) / seconds / 1e9 for seconds in values] for name, values in samples.items()}
    print(report.spread(speeds, "GB/s"))
    if gloo is None:
        print("no gloo to compare with: `make bench-env` makes an environment that has it")
    report.finish(samples, goals(samples, sizes) if gloo else [])


def _size(name: str) -> int:
    return int(name.split(", ")[1].removesuffix(" MB")) << 20


if __name__ == "__main__":
    main()
