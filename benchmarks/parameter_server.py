"""Commit and pull through a parameter server on one host: ours, the protocol of dist-keras, and TensorFlow's.

    python -m benchmarks.b3 [--quick]

An exchange is the commit of an update of 2.8 or 25 MB by a worker, and the new centre in return. 1 to 32 workers do
nothing else, so this is the most that a server can do, and more than a training asks for. Ours has 1 or 2 shards. All
processes of a variant run from the beginning to the end. A block is one second of one number of workers and one size,
and in each round every variant has one block of each. A sample is the exchanges per second of a block; GB/s are the
bytes of commits and centres. CPU ms are those of server and workers for an exchange, which depend less on other work
of the machine. The goals are ratios of medians.

TensorFlow's processes are started for each number of workers, up to 8, as more would not fit into memory. They have
rounds of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ddl_magics.runtime.transport.credentials import Credentials

from .harness import command, cpu_time, report
from .harness.free_ports import free_addresses
from .harness.json_process import ROOT, JsonProcess, ask, close, module_command
from .harness.rounds import rotated

CREDENTIALS = Credentials("benchmark", b"of the benchmarks".ljust(32, b"."))
#: Elements (4 bytes) of each layer of a small convolutional network and of a larger one.
MODELS = {
    "2.8 MB": [288, 32, 18432, 64, 663552, 72, 11520],
    "25 MB": [1728, 64, 36864, 64, 73728, 128, 147456, 128, 294912, 256, 589824, 256, 5120000, 1000],
}
WORKERS, QUICK_WORKERS = (1, 2, 4, 8, 16, 32), (1, 4, 32)
ROUNDS, QUICK_ROUNDS = 5, 2
TF_WORKERS, TF_ROUNDS, TF_TRIALS, TF_TIMEOUT_SECONDS = 8, 3, 3, 600
BLOCK_SECONDS = 1.0
#: Exchanges of each worker before the first block, so that all memory has been touched.
WARM_UP = 4
OURS, OURS_TWO, PICKLED, TENSORFLOW = "ours, 1 shard", "ours, 2 shards", "dist-keras' protocol", "TensorFlow"
#: Times as fast as the others.
GOAL_RATIO = 5.0
#: The rate with the second number of workers, by that with the first.
SCALING_WORKERS, GOAL_SCALING = (4, 32), 0.8


class Rate(NamedTuple):
    """Exchanges per second of all workers together, and the seconds of each exchange."""

    per_second: float
    seconds: list[float]


class Samples(NamedTuple):
    """Variant -> exchanges per second, a sample for each round; the seconds of all exchanges; and CPU seconds of one.

    cpu: of server and workers together, a sample for each round; none of TensorFlow.
    """

    rates: dict[str, list[float]]
    seconds: dict[str, list[float]]
    cpu: dict[str, list[float]]


class Team:
    """The servers and the workers of a variant. protocol: "ours" or "pickled"."""

    def __init__(self, protocol: str, shards: int, workers: int) -> None:
        self._servers = [_server(protocol, workers) for _ in range(shards)]
        addresses = json.dumps([["127.0.0.1", server.receive()["port"]] for server in self._servers])
        self._workers = [
            JsonProcess(module_command("commit_pull_worker", protocol, rank, addresses)) for rank in range(workers)
        ]
        self._fit = 0

    def prepare(self, layers: Sequence[int]) -> None:
        """Have a model with so many elements in each layer."""
        ask(self._workers, {"layers": layers, "fit": self._fit})
        self._fit += 1

    def block(self, workers: int, seconds: float, least: int = 1) -> Rate:
        """Let so many workers exchange for some seconds, and each at least `least` times."""
        taken: list[list[float]] = ask(self._workers[:workers], {"seconds": seconds, "least": least})
        return Rate(sum(len(each) / sum(each) for each in taken), [one for each in taken for one in each])

    def close(self) -> None:
        close([*self._workers, *self._servers])


def _server(protocol: str, workers: int) -> JsonProcess:
    if protocol == "pickled":
        return JsonProcess(module_command("pickle_server"))
    server = JsonProcess([sys.executable, "-m", "ddl_magics.runtime.parameter_server.server"])
    config = {"credentials": CREDENTIALS.to_json(), "host": "127.0.0.1", "size": workers, "attempt": 1}
    server.send({**config, "rule": "adag", "options": {}})
    return server


def variant(model: str, workers: int, name: str) -> str:
    return f"{model}, {workers} workers, {name}"


def measure(counts: Sequence[int], rounds: int, seconds: float) -> Samples:
    samples = Samples(defaultdict(list), defaultdict(list), defaultdict(list))
    most = max(counts)
    teams = {OURS: Team("ours", 1, most), OURS_TWO: Team("ours", 2, most), PICKLED: Team("pickled", 1, most)}
    for model, layers in MODELS.items():
        for team in teams.values():
            team.prepare(layers)
            team.block(most, 0.0, WARM_UP)
        for number in range(rounds):
            for workers in counts:
                for name in rotated(teams, number):
                    before = cpu_time.so_far()
                    rate = teams[name].block(workers, seconds)
                    spent = cpu_time.so_far() - before
                    samples.cpu[variant(model, workers, name)].append(spent / len(rate.seconds))
                    samples.rates[variant(model, workers, name)].append(rate.per_second)
                    samples.seconds[variant(model, workers, name)] += rate.seconds
                    _show(number, variant(model, workers, name), rate.per_second)
    for team in teams.values():
        team.close()
    for number in range(min(TF_ROUNDS, rounds)):
        for workers in [count for count in counts if count <= TF_WORKERS]:
            for model, per_second in zip(MODELS, _tensorflow(workers, seconds), strict=True):
                samples.rates[variant(model, workers, TENSORFLOW)].append(per_second)
                _show(number, variant(model, workers, TENSORFLOW), per_second)
    return samples


def _show(number: int, name: str, per_second: float) -> None:
    print(f"round {number + 1}: {name}: {per_second:.1f}/s", file=sys.stderr, flush=True)


def _tensorflow(workers: int, seconds: float) -> list[float]:
    """The exchanges per second with each model."""
    sizes = [4 * sum(layers) for layers in MODELS.values()]
    for _ in range(TF_TRIALS):  # another process may take one of the ports
        addresses = json.dumps(free_addresses(2 + workers))
        ended = subprocess.run(
            module_command("tf_parameter_server", seconds, addresses, *sizes),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TF_TIMEOUT_SECONDS,
        )
        if not ended.returncode:
            rates: list[float] = json.loads(ended.stdout.splitlines()[-1])
            return rates
    raise SystemExit(f"parameter_server: TensorFlow failed: {ended.stderr[-2000:]}")


def table(samples: Samples) -> str:
    """Of each variant: medians over rounds, and the 95 % quantile of all exchanges."""
    rows = []
    for name, rates in samples.rates.items():
        size = 4 * sum(MODELS[name.split(", ")[0]])
        late = report.quantile(samples.seconds[name], 0.95) * 1e3 if name in samples.seconds else "-"
        cpu = median(samples.cpu[name]) * 1e3 if name in samples.cpu else "-"
        speed = median(rates) * 2 * size / 1e9
        rows.append((name, len(rates), median(rates), min(rates), max(rates), speed, late, cpu))
    return report.table(("", "rounds", "exchanges/s", "least", "most", "GB/s", "p95 ms", "CPU ms"), rows)


def goals(rates: Mapping[str, list[float]]) -> list[report.Goal]:
    found = []
    for model in MODELS:
        for workers in sorted({int(name.split(", ")[1].split()[0]) for name in rates}):
            ours = rates[variant(model, workers, OURS)]
            for other in (PICKLED, TENSORFLOW):
                theirs = rates.get(variant(model, workers, other))
                if theirs:
                    name = f"{variant(model, workers, OURS)}: times as fast as {other}"
                    found.append(report.at_least(name, median(ours) / median(theirs), GOAL_RATIO))
        few, many = (median(rates[variant(model, workers, OURS)]) for workers in SCALING_WORKERS)
        name = f"{model}, {OURS}: rate at {SCALING_WORKERS[1]} workers by that at {SCALING_WORKERS[0]}"
        found.append(report.at_least(name, many / few, GOAL_SCALING))
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    quick = (
        command.parser("parameter_server", __doc__, "two rounds with 1, 4 and 32 workers").parse_args(arguments).quick
    )
    counts, rounds = (QUICK_WORKERS, QUICK_ROUNDS) if quick else (WORKERS, ROUNDS)
    samples = measure(counts, rounds, BLOCK_SECONDS)
    print(table(samples))
    report.finish(samples.rates, goals(samples.rates))


if __name__ == "__main__":
    main()
