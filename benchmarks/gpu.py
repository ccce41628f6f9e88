"""Ranks on one GPU, compared with as many independent processes of plain Keras on it, in samples/s.

    python -m benchmarks.gpu [--quick] [--networks cnn resnet50] [--image 64] [--policy mixed_float16] [--rounds N]

One and two processes train a small convolutional network (32 x 32, 2.4 million parameters) or ResNet50, with global
batches of 256. "ours" are ranks with all that they have in a run except Spark. "Keras" are processes that know nothing
of each other, and share the batch: two of them are what two ranks would reach if an exchange cost nothing. XLA compiles
all, as is Keras' default on a GPU; with ResNet50 that takes a minute before the first round.

In each round every variant trains some epochs. A sample is the median of its epochs. Goals are medians of the ratios
within rounds. Without a GPU it runs on the CPU, which says nothing about a GPU. Figures: gpu.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ddl_magics.runtime.executor.telemetry import GpuSampler

from .child_processes.gpu_networks import NETWORKS, Epochs
from .harness import command, report
from .harness.json_process import CHILDREN, JsonProcess, ask, close, module_command
from .harness.ranks import Ranks
from .harness.rounds import rotated

BATCH = 256
#: Network -> height and width of its images, steps of an epoch.
SIZES = {"cnn": (32, 64), "resnet50": (64, 16)}
EPOCHS, ROUNDS, QUICK_ROUNDS = 4, 5, 1
#: Network -> goal of one rank, goal of two, of as many processes of Keras.
GOALS = {"cnn": (0.98, 0.8), "resnet50": (0.98, 0.85)}
OURS, KERAS = "ours", "Keras"


class Team:
    """`size` processes that train together or, with Keras alone, beside each other."""

    def __init__(self, kind: str, size: int, folder: Path) -> None:
        self._share = size if kind == KERAS else 1
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if kind == OURS:
            self._processes = Ranks((CHILDREN / "gpu_networks.py").read_text(), size, folder, environment).processes
        else:
            self._processes = [JsonProcess(module_command("gpu_networks"), environment) for _ in range(size)]

    def begin(self, epochs: Epochs) -> None:
        """Have it train, without waiting."""
        for process in self._processes:
            process.send(self._shared(epochs))

    def end(self) -> list[list[float]]:
        """The seconds of each process' epochs, once they have trained."""
        return [process.receive() for process in self._processes]

    def rate(self, epochs: Epochs) -> float:
        """Samples per second of all processes together."""
        sent = self._shared(epochs)
        rows = sent["batch"] * sent["steps"]
        rates: list[float] = [rows / median(seconds) for seconds in ask(self._processes, sent)]
        return sum(rates) if self._share > 1 else min(rates)

    def _shared(self, epochs: Epochs) -> Epochs:
        return {**epochs, "batch": epochs["batch"] // self._share}

    def close(self) -> None:
        close(self._processes)


def measure(network: str, options: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """Variant -> samples per second, in each round."""
    image, steps = SIZES[network]
    image = options.image or image
    asked: Epochs = {
        "network": network,
        "image": 8 if options.quick and network == "cnn" else image,
        "batch": 8 if options.quick else BATCH,
        "steps": 2 if options.quick else steps,
        "epochs": EPOCHS,
        "policy": options.policy,
    }
    teams = {
        label(network, kind, size): Team(kind, size, folder / f"{network}-{size}")
        for size in (1, 2)
        for kind in (KERAS, OURS)
    }
    samples: dict[str, list[float]] = defaultdict(list)
    try:
        for team in teams.values():  # XLA compiles for all at once
            team.begin({**asked, "epochs": 1})
        for name, team in teams.items():
            first = max(seconds[0] for seconds in team.end())
            print(f"{name}: first epoch {first:.1f} s", file=sys.stderr, flush=True)
        for number in range(command.rounds(options, ROUNDS, QUICK_ROUNDS)):
            for name in rotated(teams, number):
                samples[name].append(teams[name].rate(asked))
    finally:
        for team in teams.values():
            team.close()
    return dict(samples)


def label(network: str, kind: str, size: int) -> str:
    return f"{network}, {size} x {kind}"


def goals(network: str, samples: dict[str, list[float]]) -> list[report.Goal]:
    """One and two ranks, of as many processes of Keras."""
    made = []
    for size, goal in zip((1, 2), GOALS[network], strict=True):
        pairs = zip(samples[label(network, OURS, size)], samples[label(network, KERAS, size)], strict=True)
        name = f"{network}, {size} ranks of {size} x Keras"
        made.append(report.at_least(name, median(ours / keras for ours, keras in pairs), goal))
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = command.parser("gpu", __doc__, "one round of tiny batches")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=["cnn"], help="cnn by default")
    parser.add_argument("--image", type=int, default=None, help="height and width; 32 for cnn, 64 for resnet50")
    parser.add_argument("--policy", default="float32", help="Keras' dtype policy, such as mixed_float16")
    command.add_rounds(parser, ROUNDS)
    options = parser.parse_args(arguments)
    gpus = [gpu["name"] for gpu in GpuSampler().sample() or []]
    print(f"GPUs: {', '.join(gpus) or 'none, so that this is the CPU'}")
    samples: dict[str, list[float]] = {}
    met: list[report.Goal] = []
    with tempfile.TemporaryDirectory() as folder:
        for network in options.networks:
            measured = measure(network, options, Path(folder))
            samples.update(measured)
            met += goals(network, measured)
    print(report.spread(samples, "samples/s"))
    report.finish(samples, met, gpus=gpus, policy=options.policy)


if __name__ == "__main__":
    main()
