"""The accuracy of every strategy and update rule, against one process, on 1 to 8 workers.

    python -m benchmarks.b5 [--quick] [--workers N ...] [--seeds N] [--epochs FACTOR] [--only NAME ...] [--keep FILE]

Measured are the rules of the parameter server, synchronous elastic averaging (easgd), averaging after each epoch
(average) and the sum of gradients (allreduce), all with their default settings. All train the same small network
(accuracy_cell.py) with the same optimizer, batch size and number of epochs as one process. So they train on as many
samples, which the workers share. A worker's batch has the batch size, except with allreduce, where it is a part of
the batch. The tasks are

* digits: the 1797 images of 8 x 8 of scikit-learn; a third of them for the test
* table: 10000 generated rows of 30 features in two classes, and as many for the test: linear and pairwise effects, as
  between measured and derived columns, and noise

The ranks have all that they have in a run except Spark (ranks.py). The accuracy is that of the centre, or of the
ranks' common weights, on the test rows at the end of each epoch. The goals are means over the seeds after the last
epoch. Seconds are those of training, without validation and launch; where the machine has fewer cores than workers they
show the cost of the exchange and no speedup.

The whole takes hours. With --keep FILE it can be interrupted: the next call measures only what the file lacks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median, stdev
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ddl_magics.runtime.parameter_server import update_rules

from .harness import command, report
from .harness.json_process import CHILDREN, cpu_environment
from .harness.ranks import Ranks

WORKERS, QUICK_WORKERS = (1, 2, 4, 8), (2,)
SEEDS, QUICK_SEEDS = 3, 1
#: Task -> epochs.
EPOCHS = {"digits": 60, "table": 12}
QUICK_EPOCHS = 0.1
GOAL_POINTS, GOAL_WORKERS = -0.5, 8
ALONE = "one process"
#: Name -> (strategy, rule).
WAYS: dict[str, tuple[str, str | None]] = {
    **{rule: ("ps", rule) for rule in update_rules.names("ps")},
    "easgd": ("allreduce", "easgd"),
    "average": ("average", None),
    "allreduce": ("allreduce", None),
}

Array = npt.NDArray[np.float64]


class Fit(NamedTuple):
    """One training: seconds until the end of each epoch, and percent of the test rows that were right then."""

    task: str
    seconds: list[float]
    percent: list[float]


def tasks() -> dict[str, npt.NDArray[np.float32] | npt.NDArray[np.int64]]:
    """The arrays "{task}_x" (float32, rows x features), "{task}_y" (int64), and "_x_test" and "_y_test" alike."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    data = {
        "digits": (digits.data / 16, digits.target, len(digits.target) // 3),
        "table": (*_table(20_000), 10_000),
    }
    arrays = {}
    for task, (x, y, test) in data.items():
        order = np.random.default_rng(0).permutation(len(x))
        for suffix, rows in (("_test", order[:test]), ("", order[test:])):
            arrays[f"{task}_x{suffix}"] = x[rows].astype(np.float32)
            arrays[f"{task}_y{suffix}"] = y[rows].astype(np.int64)
    return arrays


def _table(rows: int) -> tuple[Array, npt.NDArray[np.bool_]]:
    draw = np.random.default_rng(5)
    x = draw.normal(size=(rows, 30))
    score = x[:, :10] @ draw.normal(size=10) + 1.5 * (x[:, 10:16] * x[:, 16:22]).sum(1)
    return x, score + draw.logistic(size=rows) > 0


def train(way: str, workers: int, folder: Path, file: Path, seeds: int, epochs: Mapping[str, int]) -> list[Fit]:
    """The fits of all tasks and seeds. folder: for the ranks. file: of `tasks`, as np.savez has written them."""
    strategy, rule = WAYS.get(way, ("single", None))
    wanted = {"file": str(file), "seeds": seeds, "epochs": epochs}
    environment = {**cpu_environment(one_thread=True), "ACCURACY_TASKS": json.dumps(wanted)}
    ranks = Ranks((CHILDREN / "accuracy_cell.py").read_text(), workers, folder, environment, strategy, rule)
    try:
        lines = list(ranks.processes[0].answers())
    finally:
        ranks.close()
    if len(lines) < seeds * len(epochs):
        raise SystemExit(f"accuracy: {way} on {workers} workers ended early; see its message above")
    return [Fit(line["task"], line["seconds"], [100 * share for share in line["accuracy"]]) for line in lines]


def variant(task: str, way: str, workers: int) -> str:
    return f"{task}, {way}, {workers} worker{'s' if workers > 1 else ''}"


def measure(options: argparse.Namespace, epochs: Mapping[str, int]) -> dict[str, list[Fit]]:
    """Variant -> the fit of each seed."""
    fits: dict[str, list[Fit]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "tasks.npz", **tasks())  # type: ignore[arg-type]  # numpy's stub takes them for allow_pickle
        todo = [(ALONE, 1), *((way, workers) for way in options.only or WAYS for workers in options.workers)]
        for number, (way, workers) in enumerate(todo):
            found = kept(options.keep, way, workers, options.seeds, epochs)
            if not found:
                found = train(way, workers, folder / str(number), folder / "tasks.npz", options.seeds, epochs)
                keep(options.keep, way, workers, found)
            for fit in found:
                fits.setdefault(variant(fit.task, way, workers), []).append(fit)
            ends = ", ".join(f"{task} {fits[variant(task, way, workers)][-1].percent[-1]:.2f} %" for task in epochs)
            print(f"{number + 1} of {len(todo)}: {way}, {workers}: {ends}", file=sys.stderr)
    return fits


def keep(file: Path | None, way: str, workers: int, fits: list[Fit]) -> None:
    """Append fits to a file of JSON lines."""
    if file is not None:
        with file.open("a") as lines:
            lines.write(json.dumps({"way": way, "workers": workers, "fits": fits}) + "\n")


def kept(file: Path | None, way: str, workers: int, seeds: int, epochs: Mapping[str, int]) -> list[Fit]:
    """The fits that `keep` has appended with as many seeds and epochs; an empty list if there are none."""
    for line in file.read_text().splitlines() if file is not None and file.exists() else ():
        record = json.loads(line)
        fits = [Fit(*fit) for fit in record["fits"]]
        lengths = sorted((fit.task, len(fit.percent)) for fit in fits)
        if (record["way"], record["workers"]) == (way, workers) and lengths == sorted([*epochs.items()] * seeds):
            return fits
    return []


def epochs_until(fit: Fit, percent: float) -> int | None:
    """The first epoch, from 1, after which `percent` were right; None if there is none."""
    return next((epoch for epoch, reached in enumerate(fit.percent, start=1) if reached >= percent), None)


def table(fits: Mapping[str, list[Fit]]) -> str:
    """A row for each variant: accuracy after all and half of the epochs, epochs and seconds until near `ALONE`."""
    rows: list[tuple[object, ...]] = []
    for name, of_seeds in fits.items():
        ends = [fit.percent[-1] for fit in of_seeds]
        alone = fits[variant(of_seeds[0].task, ALONE, 1)]
        wanted = mean(fit.percent[-1] for fit in alone) + GOAL_POINTS
        reached = [epoch for fit in of_seeds if (epoch := epochs_until(fit, wanted)) is not None]
        all_reach = len(reached) == len(of_seeds)
        rows.append(
            (
                name,
                f"{mean(ends):.2f}",
                f"{stdev(ends):.2f}" if len(ends) > 1 else "-",
                f"{mean(fit.percent[(len(fit.percent) - 1) // 2] for fit in of_seeds):.2f}",
                f"{median(reached):g} of {len(alone[0].percent)}" if all_reach else "-",
                median(fit.seconds[n - 1] for fit, n in zip(of_seeds, reached, strict=True)) if all_reach else "-",
                median(fit.seconds[-1] for fit in of_seeds),
            )
        )
    until = f"until {-GOAL_POINTS} below one process"
    header = ("", "% right", "deviation", "half way", f"epochs {until}", "seconds until then", "seconds of all")
    return report.table(header, rows)


def goals(fits: Mapping[str, list[Fit]]) -> list[report.Goal]:
    """Of the rules of the parameter server on 8 workers, in points against one process."""
    found = []
    for task, rule in itertools.product(EPOCHS, update_rules.names("ps")):
        name = variant(task, rule, GOAL_WORKERS)
        if name in fits:
            alone, ours = (mean(fit.percent[-1] for fit in fits[each]) for each in (variant(task, ALONE, 1), name))
            found.append(report.at_least(f"{name}: points to one process", ours - alone, GOAL_POINTS))
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("accuracy", __doc__, "a few epochs on 2 workers")
    parser.add_argument("--workers", type=int, nargs="+", default=None, metavar="N", help="instead of 1 2 4 8")
    parser.add_argument("--seeds", type=int, default=None, metavar="N", help=f"{SEEDS} by default")
    parser.add_argument("--epochs", type=float, default=None, metavar="FACTOR", help="times the default number")
    parser.add_argument("--only", nargs="+", choices=WAYS, metavar="NAME", help=f"some of: {', '.join(WAYS)}")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="fits that are there are not measured again")
    options = parser.parse_args(arguments)
    options.workers = options.workers or (QUICK_WORKERS if options.quick else WORKERS)
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    factor = options.epochs or (QUICK_EPOCHS if options.quick else 1.0)
    before = report.machine()
    fits = measure(options, {task: max(1, round(factor * count)) for task, count in EPOCHS.items()})
    print(table(fits))
    curves = {name: [fit._asdict() for fit in of_seeds] for name, of_seeds in fits.items()}
    samples = {name: [fit.percent[-1] for fit in of_seeds] for name, of_seeds in fits.items()}
    report.finish(samples, goals(fits), curves=curves, machine_before=before)


if __name__ == "__main__":
    main()
