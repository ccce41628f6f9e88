"""What it costs to exchange outputs within a step: a contrastive loss on two workers of one host, in steps/s.

    python -m benchmarks.gathering [--quick] [--rounds N] [--pause SECONDS]

"gathered" are two ranks with all that they have in a run except Spark, as --gather auto has it: the loss looks at 256
rows, whose outputs and targets of 128 numbers each are exchanged. "slices" are the same, but take the loss for a mean
over rows: each looks at its own 128 rows, so nothing is exchanged and the result is another one. "plain" is one process
of Keras with the whole batch. A block is one epoch with one thread for operations and one for the graph; in each round
every variant has one, and the order changes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from .harness import command, report
from .harness.json_process import CHILDREN, JsonProcess, ask, close, cpu_environment, module_command
from .harness.ranks import Ranks
from .harness.rounds import rotated

WORKERS, BATCH = 2, 256
STEPS, QUICK_STEPS = 20, 5
ROUNDS, QUICK_ROUNDS = 15, 2
GATHERED, SLICES, PLAIN = "gathered", "slices", "plain"
GOAL = 0.9

#: Code before the cell that takes every loss for a mean.
_MEANS = """
import sys as _sys
_loss = next(module for name, module in list(_sys.modules.items()) if name.endswith(".gradients.batch_loss"))
_loss.BatchLoss._verdict = lambda *_: _loss.Verdict(_loss.MEAN)
"""


def start(name: str, folder: Path) -> list[JsonProcess]:
    """The processes of a variant."""
    environment = cpu_environment(one_thread=True)
    if name == PLAIN:
        return [JsonProcess(module_command("contrastive_keras"), environment)]
    cell = (CHILDREN / "contrastive_keras.py").read_text()
    return Ranks((_MEANS if name == SLICES else "") + cell, WORKERS, folder / name, environment).processes


def measure(rounds: int, steps: int, pause: float) -> dict[str, list[float]]:
    """{variant: steps/s of each round}."""
    samples: dict[str, list[float]] = {name: [] for name in (GATHERED, SLICES, PLAIN)}
    with tempfile.TemporaryDirectory() as folder:
        teams = {name: start(name, Path(folder)) for name in samples}
        try:
            for number in range(-1, rounds):  # the first round warms up
                for name in rotated(teams, number):
                    times = ask(teams[name], {"batch": BATCH, "steps": steps})
                    time.sleep(pause)
                    if number >= 0:
                        samples[name].append(steps / max(each["seconds"] for each in times))
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
        finally:
            for processes in teams.values():
                close(processes)
    return samples


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("gathering", __doc__, "a few short blocks")
    command.add_rounds(parser, ROUNDS)
    command.add_pause(parser)
    options = parser.parse_args(arguments)
    before = report.machine()
    steps = QUICK_STEPS if options.quick else STEPS
    samples = measure(command.rounds(options, ROUNDS, QUICK_ROUNDS), steps, options.pause)
    print(report.spread(samples, "steps/s"), "\n")
    ratio = median(a / b for a, b in zip(samples[GATHERED], samples[SLICES], strict=True))
    goals = [report.at_least("steps/s with gathered outputs over those without", ratio, GOAL)]
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
