"""A training step on 2, 4 and 8 hosts with links of 1 Gbit/s: how well communication overlaps with the backward pass.

    sudo python -m benchmarks.b4 [--quick] [--hosts N ...] [--megabytes N ...] [--ways WAY ...] [--gloo PYTHON]
        [--pause SECONDS]

The hosts are network namespaces of this machine (network_hosts.py) with one rank each. They share its cores, so
computing is simulated by sleep: 17 ms for the forward pass, and 33 ms for the backward pass, which releases its
gradients in 20 equal layers. The gradients are summed in six ways:

* overlap: as a run does between hosts: each bucket as soon as it is full, in a ring (runtime/collectives/buckets.py)
* tls: the same with --encrypt yes
* bf16: overlap with --compression bf16
* after: one all-reduce in the same ring after the backward pass
* gloo: as overlap, by PyTorch's all-reduce, in processes of their own (`make bench-env` brings it)
* server: all hosts send to a parameter server on a host of its own, which sends the sum back to each

The bound of a step is forward + max(backward, wire) + last bucket. wire is the time for 2 (n - 1) / n times the bytes
at 0.95 of the link's rate, and last bucket the same for its bytes. With bf16 there are half as many bytes.

A block is a number of steps in a row; its sample is the mean time of one on rank 0. In each round every way has one
block of every size, and the order changes. Goals are medians over rounds. Every step checks its sums by value. "Of the
cores" is the CPU time of all hosts' processes in a step by what the cores of this machine have in it: real hosts have
cores of their own.

If the machine has other work, put `chrt --rr 1` before the command; other processes then run in the --pause after each
block.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import secrets
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from support.certificates import certificate

from ddl_magics.runtime.collectives import buckets
from ddl_magics.runtime.transport.credentials import Credentials

from .child_processes.simulated_step import Block
from .harness import command, report
from .harness.json_process import ROOT, JsonProcess, ask, close, module_command
from .harness.network_hosts import Hosts, obstacle
from .harness.rounds import rotated

RUN = "benchmark"
HOSTS = (2, 4, 8)
MEGABYTES = (2.8, 25.0)
WAYS = ("overlap", "tls", "bf16", "after", "server")
GLOO = "gloo"
GLOO_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
LINK, LINK_BITS_PER_SECOND = "1gbit", 1e9
#: The part of a link's rate that the bound takes as usable.
USABLE = 0.95
FORWARD_SECONDS, BACKWARD_SECONDS, LAYERS = 0.017, 0.033, 20
#: Of the bound.
GOAL = 0.90
#: Times as long as without encryption, of a step with the smaller gradients.
TLS_GOAL = 1.05
#: A block has so many steps that it would take this long at the bound.
BLOCK_SECONDS, QUICK_BLOCK_SECONDS = 1.0, 0.3
ROUNDS, QUICK_ROUNDS = 9, 2


def wire_seconds(size: float, hosts: int) -> float:
    """The least time for the all-reduce of so many bytes in a ring."""
    return 2 * (hosts - 1) / hosts * size * 8 / (USABLE * LINK_BITS_PER_SECOND)


def bound_seconds(size: int, hosts: int, compressed: bool) -> float:
    """The least time of a step with overlap, for gradients of so many bytes."""
    _, begin, end = plan(size)[-1]
    share = 0.5 if compressed else 1.0
    wire = wire_seconds(share * size, hosts)
    return FORWARD_SECONDS + max(BACKWARD_SECONDS, wire) + wire_seconds(share * 4 * (end - begin), hosts)


def plan(size: int) -> list[tuple[int, int, int]]:
    """The buckets of gradients of so many bytes: the last layer of each, and its elements from where to where."""
    bounds = [size // 4 * layer // LAYERS for layer in range(LAYERS + 1)]
    planned = buckets.plan([4 * (end - begin) for begin, end in itertools.pairwise(bounds)])
    return [(bucket[-1], bounds[bucket[0]], bounds[bucket[-1] + 1]) for bucket in planned]


class Team:
    """A process on each of `count` hosts, and the server on one more; with gloo, a second process on each.

    gloo: a Python with PyTorch, or None.
    """

    def __init__(self, hosts: Hosts, count: int, gloo: Path | None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        store = Path(self._folder.name) / "gloo"
        self._gloo = [] if gloo is None else [_gloo_process(hosts, rank, count, store, gloo) for rank in range(count)]
        for process in self._gloo:
            process.receive()
        roles = [*range(count), "server"]
        with tempfile.NamedTemporaryFile("w", suffix=".credentials") as file:
            credentials = Credentials(RUN, secrets.token_bytes(32), certificate(RUN))
            json.dump(credentials.to_json(), file)
            file.flush()
            commands = [
                module_command("host_step", hosts.address(host), role, count, file.name)
                for host, role in enumerate(roles)
            ]
            self._processes = [JsonProcess([*hosts.command(host), *command]) for host, command in enumerate(commands)]
            addresses = [process.receive() for process in self._processes]
        for process in self._processes:
            process.send(addresses)

    def block(self, way: str, size: int, repeat: int) -> tuple[float, float]:
        """The mean seconds of a step on rank 0, and its CPU seconds on all hosts, which are not known of gloo."""
        block = _block(way, size, repeat, FORWARD_SECONDS, BACKWARD_SECONDS)
        if way == GLOO:
            return ask(self._gloo, block)[0], math.nan
        answers = ask(self._processes, block)
        return answers[0][0], sum(answer[-1] for answer in answers if answer)

    def step(self, way: str, size: int, repeat: int, forward: float, backward: float) -> list[float]:
        """What host_step.py answers for rank 0, but for the CPU time. forward, backward: seconds of a pass."""
        answer: list[float] = ask(self._processes, _block(way, size, repeat, forward, backward))[0]
        return answer[:-1]

    def close(self) -> None:
        close(self._processes + self._gloo)
        self._folder.cleanup()


def _block(way: str, size: int, repeat: int, forward: float, backward: float) -> Block:
    return {
        "way": way,
        "size": size,
        "repeat": repeat,
        "forward": forward,
        "backward": backward,
        "layers": LAYERS,
        "buckets": plan(size),
    }


def _gloo_process(hosts: Hosts, rank: int, count: int, store: Path, python: Path) -> JsonProcess:
    return JsonProcess([*hosts.command(rank), *module_command("gloo_step", rank, count, store, python=python)])


def measure(
    counts: tuple[int, ...],
    sizes: tuple[float, ...],
    ways: tuple[str, ...],
    rounds: int,
    seconds: float,
    pause: float,
    gloo: Path | None,
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Variant ("4 hosts, 25.0 MB, overlap") -> seconds of a step, and shares of the cores: a sample for each round."""
    samples, of_cores = defaultdict(list), defaultdict(list)
    for count in counts:
        with Hosts(count + 1, LINK) as hosts:
            team = Team(hosts, count, gloo)
            for number in range(-1, rounds):  # the first round warms up
                for megabytes in sizes:
                    size = gradient_bytes(megabytes)
                    repeat = max(2, round(seconds / bound_seconds(size, count, compressed=False)))
                    for way in rotated(ways, number):
                        taken, cpu = team.block(way, size, 1 if number < 0 else repeat)
                        time.sleep(pause)
                        if number >= 0:
                            samples[variant(count, megabytes, way)].append(taken)
                            of_cores[variant(count, megabytes, way)].append(cpu / taken / (os.cpu_count() or 1))
            team.close()
    return samples, of_cores


def variant(hosts: int, megabytes: float, way: str) -> str:
    return f"{hosts} hosts, {megabytes} MB, {way}"


def efficiencies(samples: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """The bound of a step by its time. The bound is the one with overlap for the other ways too."""
    found = {}
    for name, taken in samples.items():
        hosts, megabytes, way = name.split(", ")
        bound = bound_seconds(gradient_bytes(float(megabytes.split()[0])), int(hosts.split()[0]), way == "bf16")
        found[name] = [bound / seconds for seconds in taken]
    return found


def goals(samples: Mapping[str, list[float]]) -> list[report.Goal]:
    of_bound = [
        report.at_least(f"{name}: share of the bound", median(shares), GOAL)
        for name, shares in efficiencies(samples).items()
        if name.endswith(("overlap", "bf16"))
    ]
    of_tls = [
        report.at_most(f"{name}: times as long", median(ratios), TLS_GOAL)
        for name, ratios in costs_of_tls(samples).items()
        if f", {min(MEGABYTES)} MB, " in name
    ]
    return of_bound + of_tls


def costs_of_tls(samples: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Variant of "tls" -> times as long as "overlap", and as gloo where it was measured, within each round."""
    found = {}
    for name, taken in samples.items():
        head, _, way = name.rpartition(", ")
        for other in ("overlap", GLOO):
            if way == "tls" and f"{head}, {other}" in samples:
                pairs = zip(taken, samples[f"{head}, {other}"], strict=True)
                found[f"{name} / {other}"] = [mine / theirs for mine, theirs in pairs]
    return found


def gradient_bytes(megabytes: float) -> int:
    return int(megabytes * 1e6) // 4 * 4


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("multi_host_step", __doc__, "few rounds of short blocks")
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS, metavar="N", help="instead of 2 4 8")
    parser.add_argument("--megabytes", type=float, nargs="+", default=MEGABYTES, metavar="N", help="instead of 2.8 25")
    parser.add_argument("--ways", nargs="+", choices=(*WAYS, GLOO), default=(*WAYS, GLOO), help="instead of all")
    parser.add_argument("--gloo", type=Path, default=GLOO_PYTHON, metavar="PYTHON", help="a Python with PyTorch")
    command.add_pause(parser)
    options = parser.parse_args(arguments)
    if problem := obstacle():
        raise SystemExit(f"multi_host_step: {problem}")
    rounds, seconds = (QUICK_ROUNDS, QUICK_BLOCK_SECONDS) if options.quick else (ROUNDS, BLOCK_SECONDS)
    gloo = options.gloo if GLOO in options.ways and options.gloo.exists() else None
    ways = tuple(way for way in options.ways if way != GLOO or gloo is not None)
    samples, of_cores = measure(
        tuple(options.hosts), tuple(options.megabytes), ways, rounds, seconds, options.pause, gloo
    )
    print(report.spread({name: [1000 * each for each in taken] for name, taken in samples.items()}, "ms a step"))
    print(report.spread(efficiencies(samples), "of the bound"))
    print(report.spread(of_cores, "of the cores"))
    print(report.spread(costs_of_tls(samples), "times as long"))
    report.finish(samples, goals(samples))


if __name__ == "__main__":
    main()
