"""What `%ddl scale` says about the training cell of notebooks/energy.ipynb: its table, a prediction, what was measured.

    python -m benchmarks.energy_scaling [--quick] [--data FOLDER] [--seeds N]

The notebook's own cells prepare the table of --data (or generate one) and train, on a Spark of this machine. It has
four executors of 0.4 cores each (this needs root), so that workers do not take CPU time from each other. `%ddl scale`
measures one and two workers, by all-reduce and with a parameter server. From these, the samples/s of four are
predicted, and then measured by the same command. --quick has little data.

The goal is an error of 10 % at most, and that the bounds of 90 % hold what was measured.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from support import processes, shells, spark
from support.paths import ROOT

from ddl_magics.scaling import ScalingReport
from ddl_magics.scaling.prediction import Prediction

from .harness import command, report
from .harness.limited_python import limited_python, obstacle

MEASURED, PREDICTED = "1,2", 4
STRATEGIES = "allreduce,ps"
SEEDS, EPOCHS = 2, 3
HOURS, QUICK_HOURS = 4000, 700
GOAL = 0.10
#: Of each executor; four have less than the two of the smallest machine.
CORES = 0.4


def notebook_cells() -> list[str]:
    """The source of the notebook's code cells, from the data to the training cell, which is the last."""
    notebook = nbformat.read(ROOT / "notebooks" / "energy.ipynb", as_version=4)
    sources = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "code" and not {"parameters", "injected-parameters", "spark"} & set(tags):
            sources.append(cell.source)
        if cell.source.startswith("%%distributed"):
            return sources
    raise ValueError("notebooks/energy.ipynb has no cell that begins with %%distributed")


def measure(hours: int, data: str, seeds: int, epochs: int) -> tuple[ScalingReport, list[Prediction]]:
    """The report of all numbers of workers, and the predictions that were made before the largest was measured."""
    processes.start_session()
    clusters = spark.Clusters()
    shell = InteractiveShell.instance(colors="nocolor")
    with limited_python(CORES) as python:
        session = clusters.get(PREDICTED, python)
        shell.user_ns.update(spark=session, hours=hours, data=data, epochs=epochs, workers=[2])
        shell.run_line_magic("load_ext", "ddl_magics")
        try:
            return _scaled(shell, seeds)
        finally:
            shells.session(shell).close()
            clusters.stop()


def _scaled(shell: InteractiveShell, seeds: int) -> tuple[ScalingReport, list[Prediction]]:
    *prepare, train = notebook_cells()
    for source in prepare:
        shell.run_cell(source).raise_error()
    line, _, body = train.partition("\n")
    shell.run_cell(f"{line} --wait\n{body}".replace("{min(2, max(workers))}", "2")).raise_error()
    scaled = f"scale demand --strategy {STRATEGIES} --seeds {seeds} --workers"
    first = shell.run_line_magic("ddl", f"{scaled} {MEASURED}")
    predicted = first.predict(workers=PREDICTED)
    print(f"{first}\n\n{predicted}\n")
    whole = shell.run_line_magic("ddl", f"{scaled} {MEASURED},{PREDICTED}")
    print(f"{whole}\n")
    return whole, predicted.rows


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    """contextlib.chdir, which Python 3.10 does not have."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("energy_scaling", __doc__, "little data, one seed")
    parser.add_argument("--data", type=Path, default=ROOT / "notebooks" / "data" / "energy", metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    if problem := obstacle():
        raise SystemExit(f"energy_scaling: {problem}")
    before = report.machine()
    with tempfile.TemporaryDirectory(prefix="ddl-energy-") as folder, _inside(folder):
        os.environ["JUPYTER_DATA_DIR"] = folder
        if options.quick:
            found, predicted = measure(QUICK_HOURS, str(options.data.resolve()), 1, 1)
        else:
            found, predicted = measure(HOURS, str(options.data.resolve()), options.seeds, EPOCHS)
    measured = {row.strategy: row.rate for row in found.rows if row.workers == PREDICTED}
    rows, goals = [], []
    for one in predicted:
        rate, there = one.rate, measured[one.strategy]
        error = rate.value / there - 1
        held = "held" if rate.low <= there <= rate.high else "not held"
        rows.append((one.strategy, there, rate.value, f"{rate.low:.0f} to {rate.high:.0f}", f"{error:+.1%}", held))
        goals.append(report.at_most(f"{one.strategy}: error of the prediction", abs(error), GOAL))
    print(report.table(("", "measured/s", "predicted/s", "90 %", "error", "bounds"), rows) + "\n")
    samples: dict[str, list[float]] = defaultdict(list)
    for each in found.runs:
        samples[f"{each.strategy}, {each.workers}"].append(each.rate)
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
