"""Searches of 60 trials: what early stopping brings, how soon the next trial trains, and what a search itself costs.

    python -m benchmarks.search [--quick] [--part asha|hyperband|overhead]... [--seeds N] [--first SEED] [--keep FILE]

"asha": for each seed, the digits of scikit-learn with TPE and ASHA; then a random search without pruning, until it has
trained as many epochs. "hyperband": the same budget in one process by KerasTuner's Hyperband (`make bench-env`).
"overhead": a search, and runs with the same values that a loop submits to the same session, in turn. The Spark has two
executors of one core. CPU seconds are those of all its processes and of the notebook's.

--keep adds the samples to a file, and reports all that it has: a long benchmark in parts. A plot is written beside it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from support import processes, spark
from support.paths import ROOT

from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.options.parsing import parse
from ddl_magics.runs import Run
from ddl_magics.search import Search
from ddl_magics.session.session import Session

from .harness import command, cpu_time, report

WORKERS, TRIALS, QUICK_TRIALS, EPOCHS = 2, 60, 6, 9
PARTS = ("asha", "hyperband", "overhead")
SEEDS, OVERHEAD_TRIALS, OVERHEAD_ROUNDS = 5, 12, 4
#: The plot leaves out what is below: first trials that learned little.
LEAST_DRAWN = 0.86
#: A search may take so many times as long as its bare runs.
GOAL = 1.02
OTHERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"

CELL = f"""
import keras
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = (x / 16.0).astype("float32")
cut = len(x) * 4 // 5
lr = ddl.suggest_float("lr", 1e-5, 1.0, log=True)
units = ddl.suggest_int("units", 16, 256, log=True)
act = ddl.suggest_categorical("act", ["relu", "tanh"])
model = keras.Sequential([keras.layers.Dense(units, act), keras.layers.Dense(10, "softmax")])
model.compile(keras.optimizers.Adam(lr), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x[:cut], y[:cut], validation_data=(x[cut:], y[cut:]), epochs={EPOCHS}, batch_size=32, verbose=0)
"""

Sample = Mapping[str, Any]


def searched(session: Session, names: dict[str, Any], options: str) -> tuple[Search, dict[str, float]]:
    """A search that has ended, and what it took."""
    began, used = time.monotonic(), cpu_time.so_far()
    line = f"--objective val_accuracy:max --name tuned {options}"
    search = session.search(dataclasses.replace(parse(line), cell=CELL), names)
    search.wait(600)
    return search, {"seconds": time.monotonic() - began, "cpu": cpu_time.so_far() - used}


def outcome(search: Search) -> dict[str, Any]:
    """Best value, number of trials and epochs of a search, and the best value after so many seconds."""
    rows = [row for row in search.view.rows if row.value is not None]
    start = min((row.begun for row in rows), default=0.0)
    best, curve = 0.0, []
    for seconds, value in sorted((row.begun + row.seconds - start, row.value or 0.0) for row in rows):
        best = max(best, value)
        curve.append((seconds, best))
    return {"best": best, "trials": len(rows), "epochs": sum(row.epochs for row in rows), "curve": curve}


def gaps(search: Search) -> list[float]:
    """Seconds from the end of a trial to the first step of the trial that takes its slot, for each but the last."""
    runs = [search.run(row.number) for row in search.view.rows]
    ends = sorted(moment for run in runs for moment in [_end(run)] if moment)
    begins = sorted(moment for run in runs for moment in [_first_step(run)] if moment)
    return [begin - end for end, begin in zip(ends, begins[WORKERS:], strict=False)]


def _end(run: Run) -> float | None:
    last = [event for event in run.events if event["kind"] == "state" and event["attempt"] and event["rank"] == -1]
    return last[-1]["time"] if last else None


def _first_step(run: Run) -> float | None:
    steps = next((event for event in run.events if event["kind"] == "steps"), None)
    return steps["time"] - steps["seconds"] if steps else None


def asha(session: Session, names: dict[str, Any], seed: int, trials: int) -> Iterator[Sample]:
    """A search with early stopping, and a random one without that trains as many epochs."""
    search, took = searched(session, names, f"--trials {trials} --search tpe --prune asha --seed {seed}")
    found = outcome(search)
    yield {"kind": "TPE, ASHA", "seed": seed, **found, **took, "gaps": gaps(search)}
    options = f"--trials {max(round(found['epochs'] / EPOCHS), 1)} --search random --prune no --seed {seed}"
    search, took = searched(session, names, options)
    yield {"kind": "random, no pruning", "seed": seed, **outcome(search), **took, "gaps": gaps(search)}


def hyperband(seed: int, budget: int) -> Sample:
    """KerasTuner's search of so many epochs."""
    script = Path(__file__).with_name("child_processes") / "hyperband.py"
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(each) for each in (budget, EPOCHS, seed, folder)]
        done = subprocess.run([OTHERS_PYTHON, script, *arguments], capture_output=True, text=True, check=True)
    return {"kind": "KerasTuner Hyperband", "seed": seed, **json.loads(done.stdout.splitlines()[-1])}


def overhead(session: Session, names: dict[str, Any], trials: int, rounds: int) -> Iterator[Sample]:
    """A search and its bare runs in turn, after a search that is not measured: random ones with one seed are equal."""
    options = f"--trials {trials} --search random --prune no --seed 1"
    search, _ = searched(session, names, options)
    values = [row.params for row in search.view.rows]
    for number in range(rounds):
        kinds = ("search", "bare runs") if number % 2 else ("bare runs", "search")
        for kind in kinds:
            took = bare(session, names, values) if kind == "bare runs" else searched(session, names, options)[1]
            yield {"kind": kind, "seed": number, **took}


def bare(session: Session, names: dict[str, Any], values: list[Mapping[str, Any]]) -> dict[str, float]:
    """What runs with these values take, of which a thread for each slot submits the next when one has ended."""

    def train(given: Mapping[str, Any]) -> None:
        line = " ".join(f"--set {name}={value}" for name, value in given.items())
        spec = parse(f"--strategy single --workers 1 --seed 1 {line}")
        session.submit(dataclasses.replace(spec, cell=CELL), names).wait(600)

    began, used = time.monotonic(), cpu_time.so_far()
    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(train, values))
    return {"seconds": time.monotonic() - began, "cpu": cpu_time.so_far() - used}


def measure(parts: list[str], seeds: range, quick: bool, known: list[Sample]) -> Iterator[Sample]:
    """The samples of these parts. known: earlier ones, of which the budgets of "hyperband" are."""
    budgets = {sample["seed"]: sample["epochs"] for sample in _of(known, "TPE, ASHA")}
    if {"asha", "overhead"} & set(parts):
        for sample in _on_spark(parts, seeds, quick):
            if sample["kind"] == "TPE, ASHA":
                budgets[sample["seed"]] = sample["epochs"]
            yield sample
    for seed in seeds if "hyperband" in parts else ():
        yield hyperband(seed, budgets[seed])


def _on_spark(parts: list[str], seeds: range, quick: bool) -> Iterator[Sample]:
    """In one Spark session, after a first run."""
    trials = QUICK_TRIALS if quick else TRIALS
    processes.start_session()
    clusters = spark.Clusters()
    with tempfile.TemporaryDirectory(prefix="ddl-search-") as folder:
        os.environ["JUPYTER_DATA_DIR"] = folder
        names: dict[str, Any] = {"spark": clusters.get(WORKERS)}
        session = Session(EmbeddedCluster(lambda: names))
        first = "--strategy single --workers 1 --set lr=0.01 --set units=16 --set act=relu"
        session.submit(dataclasses.replace(parse(first), cell=CELL), names).wait(200)
        try:
            for seed in seeds if "asha" in parts else ():
                yield from asha(session, names, seed, trials)
            if "overhead" in parts:
                yield from overhead(session, names, 4 if quick else OVERHEAD_TRIALS, 1 if quick else OVERHEAD_ROUNDS)
        finally:
            session.close()
            clusters.stop()


def described(samples: list[Sample]) -> list[report.Goal]:
    """Print the tables; returns the goals."""
    kinds = [kind for kind in ("TPE, ASHA", "random, no pruning", "KerasTuner Hyperband") if _of(samples, kind)]
    if kinds:
        header = ("search", "seeds", "best val_accuracy", "trials", "epochs", "seconds", "CPU s")
        print(report.table(header, [_row(kind, _of(samples, kind)) for kind in kinds]) + "\n")
    found = [gap for sample in samples for gap in sample.get("gaps", ())]
    if found:
        print(f"from a trial's end to the next one's first step: median {median(found):.2f} s, "
              f"p95 {report.quantile(found, 0.95):.2f} s, of {len(found)}\n")  # fmt: skip
    bare = {sample["seed"]: sample for sample in _of(samples, "bare runs")}
    pairs = [(mine, bare[mine["seed"]]) for mine in _of(samples, "search") if mine["seed"] in bare]
    if not pairs:
        return []
    ratios = [mine["seconds"] / its["seconds"] for mine, its in pairs]
    cpu = median(mine["cpu"] / its["cpu"] for mine, its in pairs)
    print(f"a search by its bare runs: {median(ratios):.3f} of the seconds, {cpu:.3f} of the CPU seconds")
    return [report.at_most("search by bare runs, seconds", median(ratios), GOAL)]


def _of(samples: list[Sample], kind: str) -> list[Sample]:
    return [sample for sample in samples if sample["kind"] == kind]


def _row(kind: str, samples: list[Sample]) -> list[str]:
    best = [sample["best"] for sample in samples]
    middle = [f"{median(sample[name] for sample in samples):.0f}" for name in ("trials", "epochs", "seconds", "cpu")]
    return [kind, str(len(samples)), f"{median(best):.4f} ({min(best):.4f}-{max(best):.4f})", *middle]


def plot(samples: list[Sample], path: Path) -> None:
    """The best value over the seconds of the searches, a line each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    for kind, colour in (("TPE, ASHA", "#1f77b4"), ("random, no pruning", "#999999")):
        for number, sample in enumerate(_of(samples, kind)):
            x, y = zip(*sample["curve"], strict=True)
            axes.step(x, y, where="post", color=colour, label=None if number else kind)
    axes.set(xlabel="seconds", ylabel="best val_accuracy so far")
    axes.set_ylim(bottom=LEAST_DRAWN)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=100)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("search", __doc__, "few trials, one seed")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args(arguments)
    parts = options.part or [part for part in PARTS if part != "hyperband" or OTHERS_PYTHON.exists()]
    before = report.machine()
    print(before)
    kept = options.keep.read_text().splitlines() if options.keep and options.keep.exists() else []
    samples: list[Sample] = [json.loads(line) for line in kept]
    seeds = range(options.first, options.first + (1 if options.quick else options.seeds))
    for sample in measure(parts, seeds, options.quick, list(samples)):
        print({name: value for name, value in sample.items() if name not in ("curve", "gaps")}, file=sys.stderr)
        samples.append(sample)
        if options.keep:
            with open(options.keep, "a") as file:
                file.write(json.dumps(sample) + "\n")
    if options.keep:
        plot(samples, options.keep.with_suffix(".png"))
    goals = described(samples)
    seconds = {kind: [each["seconds"] for each in _of(samples, kind)] for kind in {each["kind"] for each in samples}}
    report.finish(seconds, goals, machine_before=before)


if __name__ == "__main__":
    main()
