"""What it costs to find out by trial what a loss does to the rows of a batch: milliseconds a fit, and in steps.

    python -m benchmarks.trial [--quick] [--rounds N] [--pause SECONDS]

Two ranks on one host, with all that they have in a run except Spark, fit a new convolutional network for each
sample. "keras" is compiled with a loss of Keras, of which no trial is needed; "own" with a function of the cell, "step"
has a train_step of the cell. The time of the trials is that of the slower rank; a step is one of the second epoch, on
one thread for operations and one for the graph.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from .harness import command, report
from .harness.json_process import CHILDREN, ask, close, cpu_environment
from .harness.ranks import Ranks
from .harness.rounds import rotated

WORKERS, STEPS = 2, 10
#: The message of each fit.
FITS = {
    f"{loss}, batch {batch}": {"loss": loss, "batch": batch} for batch in (64, 256) for loss in ("keras", "own", "step")
}
ROUNDS, QUICK_ROUNDS = 7, 1
#: Trials may take as long as so many steps.
GOAL = 2.0

#: Code before the cell that adds up the time of trials, of which one may be part of another.
_TIMED = """
import sys as _sys
import time as _time

spent, _depth = [0.0], [0]


def _time_calls(module, owner, *names):
    owner = next(getattr(one, owner) for name, one in list(_sys.modules.items()) if name.endswith(module))
    for name in names:
        setattr(owner, name, _timed(getattr(owner, name)))


def _timed(original):
    def timed(*args, **kwargs):
        begun, _depth[0] = _time.perf_counter(), _depth[0] + 1
        try:
            return original(*args, **kwargs)
        finally:
            _depth[0] -= 1
            if not _depth[0]:
                spent[0] += _time.perf_counter() - begun

    return timed


_time_calls(".gradients.batch_loss", "BatchLoss", "_try")
_time_calls(".gradients.whole_metrics", "WholeMetrics", "_adds_up")
_time_calls(".training.step_trial", "StepTrial", "__call__", "couples_rows")
"""


def measure(rounds: int, pause: float) -> dict[str, list[float]]:
    """{"trial of FIT" or "step of FIT": samples in ms}, with each of `FITS`."""
    samples: dict[str, list[float]] = {f"{what} of {fit}": [] for fit in FITS for what in ("trial", "step")}
    with tempfile.TemporaryDirectory() as folder:
        cell = _TIMED + (CHILDREN / "tried_keras.py").read_text()
        processes = Ranks(cell, WORKERS, Path(folder), cpu_environment(one_thread=True)).processes
        try:
            for number in range(-1, rounds):  # the first round warms up
                for fit in rotated(FITS, number):
                    costs = ask(processes, {**FITS[fit], "steps": STEPS})
                    time.sleep(pause)
                    for what in ("trial", "step") if number >= 0 else ():
                        samples[f"{what} of {fit}"].append(1000 * max(cost[what] for cost in costs))
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
        finally:
            close(processes)
    return samples


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("trial", __doc__, "one fit of each")
    command.add_rounds(parser, ROUNDS)
    command.add_pause(parser)
    options = parser.parse_args(arguments)
    before = report.machine()
    samples = measure(command.rounds(options, ROUNDS, QUICK_ROUNDS), options.pause)
    print(report.spread(samples, "ms"), "\n")
    steps = {fit: median(samples[f"trial of {fit}"]) / median(samples[f"step of {fit}"]) for fit in FITS}
    goals = [report.at_most(f"trials of {fit}, in steps", number, GOAL) for fit, number in steps.items()]
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
