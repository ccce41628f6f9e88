"""All-reduce of 1 to 256 MB among processes of one host, 2 and 4 by default: shared memory, TCP, TLS and gloo, in GB/s.

    python -m benchmarks.b2 [--quick] [--processes N ...] [--megabytes N ...] [--transports NAME ...]
        [--gloo PYTHON] [--pause SECONDS]

All processes of all variants run from the beginning to the end; those that do not have their turn wait for a message.
A block is a number of all-reduces of one size in a row; its sample is the mean time of one on rank 0. In each round
every variant has one block of every size, and the order changes. Goals are medians of the ratios within rounds. GB/s
are the bytes of the buffer by that time. Each process sums float32 in place, as torch.distributed.all_reduce does. The
first sum is checked by value.

TCP is over loopback. "tls" is what --encrypt yes makes of "tcp". It leaves shared memory as it is: "shared memory,
encrypted run" shows that. "in halves" is a reduce-scatter and an all-gather in place of an all-reduce.

If the machine has other work, put `chrt --rr 1` before the command; other processes then run in the --pause after each
block.

gloo is PyTorch's, in an environment of its own: `make bench-env` makes it (PyTorch is a large download).
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from support.certificates import certificate

from ddl_magics.runtime.transport.credentials import Credentials

from .harness import command, report
from .harness.json_process import ROOT, JsonProcess, ask, close, module_command
from .harness.rounds import rotated

GLOO_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
RUN = "benchmark"
PROCESSES = (2, 4)
MEGABYTES = (1, 3, 16, 64, 256)
SHARED_MEMORY, TCP, GLOO = "shared memory", "tcp", "gloo"
#: The same in a run whose connections are encrypted.
ENCRYPTED = {SHARED_MEMORY: "shared memory, encrypted run", TCP: "tls"}
HALVES = ("shared memory, in halves", "tcp, in halves")
OURS = (*ENCRYPTED, *ENCRYPTED.values(), *HALVES)
#: Bytes that a block moves; it has at least one all-reduce.
BLOCK_BYTES = 128 << 20
ROUNDS, QUICK_ROUNDS = 15, 3
#: Times as fast as gloo; over TCP with 2 processes, and with more. Shared memory has no goal below 3 MB.
SHARED_MEMORY_GOAL, TCP_GOAL_OF_2, TCP_GOAL = 4.0, 1.3, 1.0
SHARED_MEMORY_GOAL_FROM = 3
#: Times as fast as without encryption, of shared memory from the same size on.
ENCRYPTED_MEMORY_GOAL = 0.95


class Team:
    """The processes of a variant."""

    def __init__(self, transport: str, processes: int, python: str | Path, folder: str) -> None:
        store = Path(folder) / f"{transport}-{processes}"
        if transport in ENCRYPTED.values():
            credentials = Credentials(RUN, secrets.token_bytes(32), certificate(RUN))
            Path(f"{store}.credentials").write_text(json.dumps(credentials.to_json()))
        self._processes = [
            JsonProcess(module_command("allreduce_rank", transport, rank, processes, store, python=python))
            for rank in range(processes)
        ]

    def block(self, megabytes: int) -> float:
        """The mean seconds of an all-reduce on rank 0."""
        repeat = max(1, BLOCK_BYTES // (megabytes << 20))
        seconds: float = ask(self._processes, {"bytes": megabytes << 20, "repeat": repeat})[0]
        return seconds / repeat

    def close(self) -> None:
        close(self._processes)


def measure(
    counts: Sequence[int],
    sizes: Sequence[int],
    transports: Sequence[str],
    rounds: int,
    pause: float,
    gloo: Path,
) -> dict[str, list[float]]:
    """Variant ("2 processes, 3 MB, tcp") -> seconds of an all-reduce, a sample for each round."""
    samples: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for processes in counts:
            pythons = {transport: gloo if transport == GLOO else sys.executable for transport in transports}
            teams = {transport: Team(transport, processes, python, folder) for transport, python in pythons.items()}
            for number in range(-1, rounds):  # the first round warms up
                for megabytes in sizes:
                    for transport in rotated(teams, number):
                        seconds = teams[transport].block(megabytes)
                        time.sleep(pause)
                        if number >= 0:
                            samples[variant(processes, megabytes, transport)].append(seconds)
            for team in teams.values():
                team.close()
    return samples


def variant(processes: int, megabytes: int, transport: str) -> str:
    return f"{processes} processes, {megabytes} MB, {transport}"


def goals(samples: Mapping[str, list[float]], counts: Sequence[int], sizes: Sequence[int]) -> list[report.Goal]:
    found = []
    for processes in counts:
        for megabytes in sizes:
            wanted = [(TCP, GLOO, TCP_GOAL_OF_2 if processes == 2 else TCP_GOAL)]
            if megabytes >= SHARED_MEMORY_GOAL_FROM:
                wanted.append((SHARED_MEMORY, GLOO, SHARED_MEMORY_GOAL))
                wanted.append((ENCRYPTED[SHARED_MEMORY], SHARED_MEMORY, ENCRYPTED_MEMORY_GOAL))
            for transport, other, goal in wanted:
                ours, theirs = (samples.get(variant(processes, megabytes, each)) for each in (transport, other))
                if ours is not None and theirs is not None:
                    ratio = median(their / our for their, our in zip(theirs, ours, strict=True))
                    name = f"{variant(processes, megabytes, transport)}: times as fast as {other}"
                    found.append(report.at_least(name, ratio, goal))
    return found


def cost_of_tls(samples: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Variant of "tls" -> times as long as "tcp", and as gloo where it was measured, within each round."""
    found = {}
    for name, taken in samples.items():
        head, _, transport = name.rpartition(", ")
        for other in (TCP, GLOO):
            if transport == ENCRYPTED[TCP] and f"{head}, {other}" in samples:
                pairs = zip(taken, samples[f"{head}, {other}"], strict=True)
                found[f"{name} / {other}"] = [mine / theirs for mine, theirs in pairs]
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("allreduce", __doc__, "few rounds, and no 256 MB")
    parser.add_argument("--processes", type=int, nargs="+", default=PROCESSES, metavar="N", help="instead of 2 4")
    parser.add_argument("--megabytes", type=int, nargs="+", metavar="N", help="instead of 1 3 16 64 256")
    parser.add_argument("--transports", nargs="+", choices=(*OURS, GLOO), default=(*OURS, GLOO), help="instead of all")
    parser.add_argument("--gloo", type=Path, default=GLOO_PYTHON, metavar="PYTHON", help="a Python with PyTorch")
    command.add_pause(parser)
    options = parser.parse_args(arguments)
    sizes = options.megabytes or (MEGABYTES[:-1] if options.quick else MEGABYTES)
    with_gloo = options.gloo.exists()
    transports = [each for each in options.transports if each != GLOO or with_gloo]
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    samples = measure(options.processes, sizes, transports, rounds, options.pause, options.gloo)
    speeds = {name: [_size(name) / seconds / 1e9 for seconds in values] for name, values in samples.items()}
    print(report.spread(speeds, "GB/s"))
    if costs := cost_of_tls(samples):
        print(report.spread(costs, "times as long"))
    if not with_gloo:
        print("gloo was not measured: run `make bench-env` first, or give --gloo PYTHON")
    report.finish(samples, goals(samples, options.processes, sizes))


def _size(name: str) -> int:
    return int(name.split(", ")[1].removesuffix(" MB")) << 20


if __name__ == "__main__":
    main()
