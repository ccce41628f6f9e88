"""A training step on 2, 4 and 8 hosts whose lines carry 1 Gbit/s: what is left of the network after the overlap.

    sudo python -m benchmarks.b4 [--quick] [--pause SECONDS]

The hosts are network namespaces of this machine (hosts.py), with one rank each. Their cores are shared, so computing is
time that passes: 17 ms of a forward pass, 33 ms of a backward pass that releases its gradients in 20 equal layers. Four
ways to sum these:

* overlap: what a run does between hosts: buckets in a ring, each as soon as it is full (runtime/buckets.py)
* bf16: the same with --compression bf16
* after: one all-reduce in the same ring after the backward pass
* server: all send to a parameter server on a host of its own, which sends the sum to each

The bound is forward + max(backward, wire) + last bucket, where wire is 2 (n - 1) / n times the bytes at 0.95 of the
line, and last bucket the same of its bytes. With bf16 the bytes are half as many.

A block is a number of steps in a row; its sample is the mean time of one on rank 0. In each round every way has one
block of every size, in changing order; goals are medians over rounds. Sums are checked by value in every step.

On a machine that has other work, `chrt --rr 1` in front of the command, and a --pause after each block in which the
others get their turn, keep that out of the measurement.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from ddl_magics.runtime import buckets

from . import report
from .hosts import Hosts, obstacle

HERE = Path(__file__).resolve().parent
HOSTS = (2, 4, 8)
MEGABYTES = (2.8, 25.0)
WAYS = ("overlap", "bf16", "after", "server")
LINE, LINE_BITS = "1gbit", 1e9
USABLE = 0.95
FORWARD_SECONDS, BACKWARD_SECONDS, LAYERS = 0.017, 0.033, 20
GOAL = 0.90
#: Of steps in a block: enough to last this long at the bound.
BLOCK_SECONDS, QUICK_BLOCK_SECONDS = 1.0, 0.3
ROUNDS, QUICK_ROUNDS = 9, 2


def wire_seconds(size: float, hosts: int) -> float:
    """The least time that a ring needs to send what must be sent of so many bytes."""
    return 2 * (hosts - 1) / hosts * size * 8 / (USABLE * LINE_BITS)


def bound_seconds(size: int, hosts: int, compressed: bool) -> float:
    """The least time of a step with overlap."""
    layers = [size * (layer + 1) // LAYERS - size * layer // LAYERS for layer in range(LAYERS)]
    last = sum(layers[layer] for layer in buckets.plan(layers)[-1])
    share = 0.5 if compressed else 1.0
    wire = wire_seconds(share * size, hosts)
    return FORWARD_SECONDS + max(BACKWARD_SECONDS, wire) + wire_seconds(share * last, hosts)


class Team:
    """The processes of so many hosts, and of their server."""

    def __init__(self, hosts: Hosts, count: int) -> None:
        self._count = count
        self._processes = [
            subprocess.Popen(
                [*hosts.command(host), sys.executable, HERE / "step_process.py", hosts.address(host), role, str(count)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for host, role in enumerate([*map(str, range(count)), "server"])
        ]
        self._tell([self._hear(process) for process in self._processes])

    def block(self, way: str, size: int, repeat: int) -> float:
        """Seconds of one step, as rank 0 sees it."""
        passes = {"forward": FORWARD_SECONDS, "backward": BACKWARD_SECONDS, "layers": LAYERS}
        self._tell({"way": way, "size": size, "repeat": repeat, **passes})
        seconds, *_ = [self._hear(process) for process in self._processes]
        return seconds

    def close(self) -> None:
        for process in self._processes:
            process.stdin.close()
        for process in self._processes:
            process.wait(30)
            process.stdout.close()

    def _tell(self, message: object) -> None:
        for process in self._processes:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()

    def _hear(self, process: subprocess.Popen) -> object:
        line = process.stdout.readline()
        if not line:
            raise SystemExit("b4: a process ended; what it said is above")
        return json.loads(line)


def measure(counts: tuple[int, ...], rounds: int, seconds: float, pause: float) -> dict[str, list[float]]:
    """Seconds of a step, by variant ("4 hosts, 25.0 MB, overlap"), a sample a round."""
    samples = defaultdict(list)
    for count in counts:
        with Hosts(count + 1, LINE) as hosts:
            team = Team(hosts, count)
            for at in range(-1, rounds):  # the first round warms up
                for megabytes in MEGABYTES:
                    size = _bytes(megabytes)
                    repeat = max(2, round(seconds / bound_seconds(size, count, compressed=False)))
                    for way in WAYS[at % len(WAYS) :] + WAYS[: at % len(WAYS)]:
                        taken = team.block(way, size, 1 if at < 0 else repeat)
                        time.sleep(pause)
                        if at >= 0:
                            samples[variant(count, megabytes, way)].append(taken)
            team.close()
    return samples


def variant(hosts: int, megabytes: float, way: str) -> str:
    return f"{hosts} hosts, {megabytes} MB, {way}"


def efficiencies(samples: dict[str, list[float]]) -> dict[str, list[float]]:
    """The bound by the time of a step; of the ways without overlap, too, by that of one with it."""
    found = {}
    for name, taken in samples.items():
        hosts, megabytes, way = name.split(", ")
        bound = bound_seconds(_bytes(float(megabytes.split()[0])), int(hosts.split()[0]), way == "bf16")
        found[name] = [bound / seconds for seconds in taken]
    return found


def goals(samples: dict[str, list[float]]) -> list[report.Goal]:
    return [
        report.at_least(f"{name}: share of the bound", median(shares), GOAL)
        for name, shares in efficiencies(samples).items()
        if name.endswith(("overlap", "bf16"))
    ]


def _bytes(megabytes: float) -> int:
    return int(megabytes * 1e6) // 4 * 4


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.b4", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds of short blocks")
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS, metavar="N", help="instead of 2 4 8")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="after each block")
    options = parser.parse_args(arguments)
    if obstacle():
        raise SystemExit(f"b4: {obstacle()}")
    rounds, seconds = (QUICK_ROUNDS, QUICK_BLOCK_SECONDS) if options.quick else (ROUNDS, BLOCK_SECONDS)
    samples = measure(tuple(options.hosts), rounds, seconds, options.pause)
    print(report.spread({name: [1000 * each for each in taken] for name, taken in samples.items()}, "ms a step"))
    print(report.spread(efficiencies(samples), "of the bound"))
    report.finish(samples, goals(samples))


if __name__ == "__main__":
    main()
