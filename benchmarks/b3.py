"""Commit and pull through a parameter server, on one host: ours of 1 and 2 shards, dist-keras' protocol, TensorFlow's.

    python -m benchmarks.b3 [--quick]

An exchange is a worker's commit of an update of 2.8 or 25 MB, and the new centre in return; workers, from 1 to 32 of
them, do nothing else. So it is the most that a server can do, and more than training asks for. All processes of a
variant live from the beginning; a block is a second of one number of workers and one size, and in each round every
variant has each block once. A sample is a block's exchanges per second; GB/s are the bytes of commits and centres.
TensorFlow's processes are started for each number of workers, up to 8, as 32 would not fit into memory; they have
rounds of their own. The goals are ratios of medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from . import report

HERE = Path(__file__).resolve().parent
SECRET = b"of the benchmarks".ljust(32, b".")
#: A small convolutional network's layers of 2.8 MB, and a larger one's of 25 MB; elements of 4 bytes.
MODELS = {
    "2.8 MB": [288, 32, 18432, 64, 663552, 72, 11520],
    "25 MB": [1728, 64, 36864, 64, 73728, 128, 147456, 128, 294912, 256, 589824, 256, 5120000, 1000],
}
WORKERS, QUICK_WORKERS = (1, 2, 4, 8, 16, 32), (1, 4, 32)
TF_WORKERS, TF_ROUNDS, TF_TRIALS = 8, 3, 3
ROUNDS, QUICK_ROUNDS = 5, 2
SECONDS = 1.0
#: Exchanges of each worker before anything is counted: all memory has been touched then.
WARM_UP = 4
OURS, OURS_TWO, PICKLED, TENSORFLOW = "ours, 1 shard", "ours, 2 shards", "dist-keras' protocol", "TensorFlow"
TIMES = 5.0
#: Of the rate at 4 workers, at 32.
COLLAPSE = 0.8


class Team:
    """The server and the workers of one variant."""

    def __init__(self, protocol: str, shards: int, workers: int) -> None:
        self._servers = [_server(protocol, workers) for _ in range(shards)]
        addresses = [["127.0.0.1", json.loads(server.stdout.readline())["port"]] for server in self._servers]
        script = [sys.executable, str(HERE / "exchange_process.py"), protocol]
        self._workers = [_start([*script, str(rank), json.dumps(addresses)]) for rank in range(workers)]
        self._fit = 0

    def prepare(self, layers: list[int]) -> None:
        """Have a model of this many elements in each layer."""
        self._ask(self._workers, {"layers": layers, "fit": self._fit})
        self._fit += 1

    def block(self, workers: int, seconds: float, least: int = 1) -> tuple[float, list[float]]:
        """(exchanges per second of this many workers together, the seconds of each exchange).

        Each worker makes `least` exchanges even if that takes longer.
        """
        answers = self._ask(self._workers[:workers], {"seconds": seconds, "least": least})
        return sum(len(taken) / sum(taken) for taken in answers), [each for taken in answers for each in taken]

    @staticmethod
    def _ask(workers: list, block: dict) -> list:
        for worker in workers:
            worker.stdin.write(json.dumps(block) + "\n")
            worker.stdin.flush()
        answers = [worker.stdout.readline() for worker in workers]
        if not all(answers):
            ended = [worker.wait(10) for worker, answer in zip(workers, answers, strict=True) if not answer]
            raise SystemExit(f"b3: workers ended with {ended}; what they said is above")
        return [json.loads(answer) for answer in answers]

    def close(self) -> None:
        for process in [*self._workers, *self._servers]:
            process.stdin.close()
        for process in [*self._workers, *self._servers]:
            process.wait(30)
            process.stdout.close()


def _start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _server(protocol: str, workers: int) -> subprocess.Popen:
    if protocol == "pickled":
        return _start([sys.executable, str(HERE / "exchange_server.py")])
    server = _start([sys.executable, "-m", "ddl_magics.runtime.parameter_server"])
    config = {"run": "benchmark", "secret": SECRET.hex(), "host": "127.0.0.1", "size": workers, "attempt": 1}
    server.stdin.write(json.dumps({**config, "rule": "adag", "options": {}}) + "\n")
    server.stdin.flush()
    return server


def variant(model: str, workers: int, name: str) -> str:
    return f"{model}, {workers} workers, {name}"


def measure(counts: tuple[int, ...], rounds: int, seconds: float) -> tuple[dict, dict]:
    """Exchanges per second, a sample a round; and all exchanges' seconds. By variant."""
    rates, times = defaultdict(list), defaultdict(list)
    most = max(counts)
    teams = {OURS: Team("ours", 1, most), OURS_TWO: Team("ours", 2, most), PICKLED: Team("pickled", 1, most)}
    for model, layers in MODELS.items():
        for team in teams.values():
            team.prepare(layers)
            team.block(most, 0.0, WARM_UP)
        for at in range(rounds):
            for workers in counts:
                order = list(teams)
                for name in order[at % len(order) :] + order[: at % len(order)]:
                    rate, taken = teams[name].block(workers, seconds)
                    rates[variant(model, workers, name)].append(rate)
                    times[variant(model, workers, name)] += taken
                    _tell(at, variant(model, workers, name), rate)
    for team in teams.values():
        team.close()
    for at in range(min(TF_ROUNDS, rounds)):
        for workers in [count for count in counts if count <= TF_WORKERS]:
            for model, rate in zip(MODELS, _tensorflow(workers, seconds), strict=True):
                rates[variant(model, workers, TENSORFLOW)].append(rate)
                _tell(at, variant(model, workers, TENSORFLOW), rate)
    return rates, times


def _tell(at: int, name: str, rate: float) -> None:
    print(f"round {at + 1}: {name}: {rate:.1f}/s", file=sys.stderr, flush=True)


def _tensorflow(workers: int, seconds: float) -> list[float]:
    """The rate of each model."""
    sizes = [str(4 * sum(layers)) for layers in MODELS.values()]
    command = [sys.executable, str(HERE / "tf_exchange.py"), str(workers), str(seconds), *sizes]
    for _ in range(TF_TRIALS):  # another process may take a port that it has chosen
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if not ended.returncode:
            return json.loads(ended.stdout.splitlines()[-1])
    raise SystemExit(f"b3: TensorFlow: {ended.stderr[-2000:]}")


def table(rates: dict[str, list[float]], times: dict[str, list[float]]) -> str:
    """Medians over rounds, and the 95 % quantile of all exchanges."""
    rows = []
    for name, values in rates.items():
        size = 4 * sum(MODELS[name.split(", ")[0]])
        late = report.quantile(times[name], 0.95) * 1e3 if name in times else "-"
        speed = median(values) * 2 * size / 1e9
        rows.append((name, len(values), median(values), min(values), max(values), speed, late))
    return report.table(("", "rounds", "exchanges/s", "least", "most", "GB/s", "p95 ms"), rows)


def goals(rates: dict[str, list[float]]) -> list[report.Goal]:
    found = []
    for model in MODELS:
        counts = sorted({int(name.split(", ")[1].split()[0]) for name in rates})
        for workers in counts:
            ours = rates[variant(model, workers, OURS)]
            for other in (PICKLED, TENSORFLOW):
                theirs = rates.get(variant(model, workers, other))
                if theirs:
                    ratio = median(ours) / median(theirs)
                    name = f"{variant(model, workers, OURS)}: times as fast as {other}"
                    found.append(report.at_least(name, ratio, TIMES))
        few, many = (rates[variant(model, workers, OURS)] for workers in (4, 32))
        name = f"{model}, {OURS}: rate at 32 workers by that at 4"
        found.append(report.at_least(name, median(many) / median(few), COLLAPSE))
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.b3", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two rounds; 1, 4 and 32 workers")
    options = parser.parse_args(arguments)
    if options.quick:
        rates, times = measure(QUICK_WORKERS, QUICK_ROUNDS, SECONDS)
    else:
        rates, times = measure(WORKERS, ROUNDS, SECONDS)
    print(table(rates, times))
    report.finish(rates, goals(rates))


if __name__ == "__main__":
    main()
