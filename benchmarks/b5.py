"""What the strategies and update rules cost in accuracy: against samples and against time, on 1 to 8 workers.

    python -m benchmarks.b5 [--quick] [--workers N ...] [--seeds N] [--epochs FACTOR] [--only NAME ...] [--keep FILE]

Every rule of the parameter server, synchronous elastic averaging, averaging after each epoch and the sum of gradients,
with the settings that they have by default, against one process. All train the same small network (accuracy_cell.py)
with the same optimizer, batch size and number of epochs, so on as many samples as the one process, shared out; a
worker's batch is that of the process, but for the sum of gradients, where it is a part of it. Two tasks:

* digits: scikit-learn's 1797 images of 8 x 8; a third of them is for the test
* table: 10000 rows of 30 features in two classes and as many for the test, generated (`_table`): linear and pairwise
  effects, as between measured and derived columns, and noise that nobody can learn

The ranks are a run's own, with what they have in a run; only Spark is not there (ranks.py). Accuracy is that of the
centre, or of the ranks' common weights, on the test rows at the end of each epoch; the goals are of its mean over the
seeds after the last. Seconds are those of training, without validation and start; on a machine of fewer cores than
workers they show what exchanging costs, and no speedup. All of it takes hours: with --keep it can be cut short and goes
on with what the file does not have yet.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import mean, median, stdev
from typing import NamedTuple

import numpy as np

from ddl_magics.runtime import rules

from . import ranks, report

HERE = Path(__file__).resolve().parent
WORKERS, QUICK_WORKERS = (1, 2, 4, 8), (2,)
SEEDS, QUICK_SEEDS = 3, 1
#: Task -> epochs.
EPOCHS = {"digits": 60, "table": 12}
QUICK_EPOCHS = 0.1
GOAL_POINTS, GOAL_WORKERS = -0.5, 8
ALONE = "one process"
#: Name -> (strategy, rule).
WAYS = {
    **{rule: ("ps", rule) for rule in rules.names("ps")},
    "easgd": ("allreduce", "easgd"),
    "average": ("average", None),
    "allreduce": ("allreduce", None),
}
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class Fit(NamedTuple):
    """One training: seconds until the end of each epoch, and percent of the test rows that were right then."""

    task: str
    seconds: list[float]
    percent: list[float]


def tasks() -> dict[str, np.ndarray]:
    """ "{task}_x", "_y", "_x_test" and "_y_test" of each task."""
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


def _table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(5)
    x = draw.normal(size=(rows, 30))
    score = x[:, :10] @ draw.normal(size=10) + 1.5 * (x[:, 10:16] * x[:, 16:22]).sum(1)
    return x, score + draw.logistic(size=rows) > 0


def train(way: str, workers: int, folder: Path, file: Path, seeds: int, epochs: dict[str, int]) -> list[Fit]:
    """All fits of a way on so many workers."""
    strategy, rule = WAYS.get(way, ("single", None))
    head = f"FILE, SEEDS, EPOCHS = {str(file)!r}, {seeds}, {epochs}\n"
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
    environment.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    cell = head + (HERE / "accuracy_cell.py").read_text()
    team = ranks.Ranks(cell, workers, folder, environment, strategy, rule)
    try:
        told = [json.loads(line) for line in team.processes[0].stdout]
    finally:
        team.close()
    if len(told) < seeds * len(epochs):
        raise SystemExit(f"b5: {way} on {workers} workers ended early; what it said is above")
    return [Fit(line["task"], line["seconds"], [100 * share for share in line["accuracy"]]) for line in told]


def variant(task: str, way: str, workers: int) -> str:
    return f"{task}, {way}, {workers} worker{'s' if workers > 1 else ''}"


def measure(options: argparse.Namespace, epochs: dict[str, int]) -> dict[str, list[Fit]]:
    """The fits of every variant, of all seeds."""
    fits: dict[str, list[Fit]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "tasks.npz", **tasks())
        todo = [(ALONE, 1), *((way, workers) for way in options.only or WAYS for workers in options.workers)]
        for at, (way, workers) in enumerate(todo):
            found = kept(options.keep, way, workers, options.seeds, epochs)
            if not found:
                found = train(way, workers, folder / str(at), folder / "tasks.npz", options.seeds, epochs)
                keep(options.keep, way, workers, found)
            for fit in found:
                fits.setdefault(variant(fit.task, way, workers), []).append(fit)
            ends = ", ".join(f"{task} {fits[variant(task, way, workers)][-1].percent[-1]:.2f} %" for task in epochs)
            print(f"{at + 1} of {len(todo)}: {way}, {workers}: {ends}", file=sys.stderr)
    return fits


def keep(file: Path | None, way: str, workers: int, fits: list[Fit]) -> None:
    """Append the fits of a way to a file of JSON lines."""
    if file is not None:
        with file.open("a") as lines:
            lines.write(json.dumps({"way": way, "workers": workers, "fits": fits}) + "\n")


def kept(file: Path | None, way: str, workers: int, seeds: int, epochs: dict[str, int]) -> list[Fit]:
    """What `keep` has left of as many seeds and epochs, or nothing."""
    for line in file.read_text().splitlines() if file is not None and file.exists() else ():
        record = json.loads(line)
        fits = [Fit(*fit) for fit in record["fits"]]
        lengths = sorted((fit.task, len(fit.percent)) for fit in fits)
        if (record["way"], record["workers"]) == (way, workers) and lengths == sorted([*epochs.items()] * seeds):
            return fits
    return []


def epochs_until(fit: Fit, percent: float) -> int | None:
    """After how many epochs `percent` were right for the first time; None for never."""
    return next((at for at, reached in enumerate(fit.percent, start=1) if reached >= percent), None)


def table(fits: dict[str, list[Fit]]) -> str:
    """Of each variant: accuracy after all samples and after half of them, epochs and seconds until as good as alone."""
    rows = []
    for name, of_seeds in fits.items():
        ends = [fit.percent[-1] for fit in of_seeds]
        alone = fits[variant(of_seeds[0].task, ALONE, 1)]
        wanted = mean(fit.percent[-1] for fit in alone) + GOAL_POINTS
        needed = [epochs_until(fit, wanted) for fit in of_seeds]
        reached = None not in needed
        rows.append(
            (
                name,
                f"{mean(ends):.2f}",
                f"{stdev(ends):.2f}" if len(ends) > 1 else "-",
                f"{mean(fit.percent[(len(fit.percent) - 1) // 2] for fit in of_seeds):.2f}",
                f"{median(needed):g} of {len(alone[0].percent)}" if reached else "-",
                median(fit.seconds[at - 1] for fit, at in zip(of_seeds, needed, strict=True)) if reached else "-",
                median(fit.seconds[-1] for fit in of_seeds),
            )
        )
    until = f"until {-GOAL_POINTS} below one process"
    header = ("", "% right", "deviation", "half way", f"epochs {until}", "seconds until then", "seconds of all")
    return report.table(header, rows)


def goals(fits: dict[str, list[Fit]]) -> list[report.Goal]:
    """Of the asynchronous rules at 8 workers, in points against one process."""
    found = []
    for task, rule in itertools.product(EPOCHS, rules.names("ps")):
        name = variant(task, rule, GOAL_WORKERS)
        if name in fits:
            alone, ours = (mean(fit.percent[-1] for fit in fits[which]) for which in (variant(task, ALONE, 1), name))
            found.append(report.at_least(f"{name}: points to one process", ours - alone, GOAL_POINTS))
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.b5", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few epochs on 2 workers, to see that it works")
    parser.add_argument("--workers", type=int, nargs="+", default=None, metavar="N", help="instead of 1 2 4 8")
    parser.add_argument("--seeds", type=int, default=None, metavar="N", help=f"{SEEDS} by default")
    parser.add_argument("--epochs", type=float, default=None, metavar="FACTOR", help="times as many as by default")
    parser.add_argument("--only", nargs="+", choices=WAYS, metavar="NAME", help=f"some of: {', '.join(WAYS)}")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="where fits are kept for the next time")
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
