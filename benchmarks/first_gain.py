"""What a gain there is in the first hour: two workers on one machine against plain Keras in one process, in seconds.

    python -m benchmarks.first_gain [--quick] [--rounds N] [--epochs N] [--write]

The cells are those of docs/faster.md: a small network on the digits of scikit-learn, moved by a pixel. "plain fit" and
"plain loop" are plain Keras in a Python process without this package, with the threads that TensorFlow takes by itself;
its seconds begin when TensorFlow is imported and the data is there. The others are cells on the embedded Spark, whose
seconds go from running the cell to its end, the start of the workers included. The seconds of `fit` alone are those
from its start to its end, with the compilation of the model. A first run, which starts Spark and TensorFlow, is not
counted.

"1 worker" and "1 worker, average" have fewer epochs. From them and the runs of two workers, the model of `%ddl scale`
predicts two machines with a worker each.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from support import processes

from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.options.parsing import parse
from ddl_magics.scaling import ScalingReport
from ddl_magics.scaling.measurement import measured_run
from ddl_magics.session.session import Session
from ddl_magics.wording import counted

from .harness import command, report
from .harness.json_process import ROOT
from .harness.rounds import rotated

ROUNDS, QUICK_ROUNDS = 3, 1
EPOCHS, QUICK_EPOCHS = 15, 2
TRIALS, WORKERS = 8, 2
LINKS_GBIT = (1, 10)

#: Variant -> its title in the pages, and what it is compared with.
ROWS = {
    "plain fit": ("plain `fit`, one process", ""),
    "all-reduce": ("all-reduce, two workers", "plain fit"),
    "average": ("`--strategy average`, two workers", "plain fit"),
    "plain loop": (f"{TRIALS} plain fits, one after another", ""),
    "search": (f"`--trials {TRIALS}`, two at once", "plain loop"),
}
#: The pages that have the figures, and where.
PAGES = tuple(ROOT / name for name in ("README.md", "docs/faster.md"))
FIGURES = re.compile(r"(<!-- made by benchmarks.first_gain -->\n\n).*?(<!-- end of figures -->)", re.DOTALL)

DATA = """
import numpy as np
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32").reshape(-1, 8, 8)
moves = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
moved = np.concatenate([np.roll(images[:1500], move, axis=(1, 2)) for move in moves])
digit = np.tile(labels[:1500], len(moves))
"""
MODEL = """
import keras

def network(units):
    hidden = keras.layers.Dense(units, activation="relu")
    model = keras.Sequential([keras.layers.Flatten(), hidden, keras.layers.Dense(10, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""
FIT = "model = network(128)\nmodel.fit(moved, digit, batch_size=32, epochs=EPOCHS, verbose=0)\n"
EVALUATE = 'model.evaluate(images[1500:], labels[1500:], verbose=0, return_dict=True)["accuracy"]'
TRIAL = (
    'network(ddl.suggest_int("units", 32, 256, log=True)).fit(moved, digit, batch_size=32, epochs=EPOCHS, verbose=0)'
)
#: Values from the range of the search.
UNITS = [32 * 2 ** (3 * n / (TRIALS - 1)) for n in range(TRIALS)]

Samples = dict[str, list[float]]


def plain(code: str, result: str = "None") -> dict[str, Any]:
    """Seconds of code in a process of plain Keras, and a value."""
    text = f"{DATA}{MODEL}\nimport json, time\nbegan = time.monotonic()\n{code}\nseconds = time.monotonic() - began\n"
    text += f"print(json.dumps({{'seconds': seconds, 'result': {result}}}))"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


class Cells:
    """Runs cells on the embedded Spark of one session."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        exec(DATA, self.names)
        self._session = Session(EmbeddedCluster(lambda: self.names))
        self.scaling = ScalingReport("digits")

    def close(self) -> None:
        self._session.close()

    def train(self, line: str, epochs: int) -> tuple[float, float, float]:
        """Seconds of the cell, of its fit, and the accuracy on the held-out digits."""
        cell = MODEL + FIT.replace("EPOCHS", str(epochs)) + EVALUATE
        began = time.monotonic()
        run = self._session.submit(dataclasses.replace(parse(line), cell=cell), self.names)
        run.wait(600)
        seconds = time.monotonic() - began
        measured = measured_run(run.spec, run.events)
        assert measured is not None, "it has trained"
        self.scaling.runs.append(measured)
        return seconds, measured.seconds, float(run.result)

    def search(self, epochs: int) -> float:
        """Seconds of a search."""
        line = f"--trials {TRIALS} --search random --prune no --objective accuracy:max --seed 1"
        cell = MODEL + TRIAL.replace("EPOCHS", str(epochs))
        began = time.monotonic()
        search = self._session.search(dataclasses.replace(parse(line), cell=cell), self.names)
        search.wait(600)
        return time.monotonic() - began


def measure(rounds: int, epochs: int) -> tuple[Samples, Samples, Samples, ScalingReport]:
    """Variant -> seconds of the cell, of its fit, and accuracies; and the runs of all-reduce."""
    cells: Samples = defaultdict(list)
    fits: Samples = defaultdict(list)
    accuracies: Samples = defaultdict(list)
    of_cells = Cells()
    try:
        of_cells.train(f"--workers {WORKERS}", 1)
        of_cells.scaling.runs.clear()
        for number in range(rounds):
            for name in rotated(VARIANTS, number):
                seconds, *others = VARIANTS[name](of_cells, epochs)
                cells[name].append(seconds)
                for value, kept in zip(others, (fits, accuracies), strict=False):
                    kept[name].append(value)
                print(f"{name}: {seconds:.1f} s", file=sys.stderr)
        return cells, fits, accuracies, of_cells.scaling
    finally:
        of_cells.close()


def _plain_fit(_: Cells, epochs: int) -> tuple[float, ...]:
    answer = plain(FIT.replace("EPOCHS", str(epochs)), EVALUATE)
    return answer["seconds"], answer["seconds"], answer["result"]


def _plain_loop(_: Cells, epochs: int) -> tuple[float, ...]:
    fit = f"network(int(units)).fit(moved, digit, batch_size=32, epochs={epochs}, verbose=0)"
    return (plain(f"for units in {UNITS}:\n    {fit}")["seconds"],)


VARIANTS: Mapping[str, Callable[[Cells, int], tuple[float, ...]]] = {
    "plain fit": _plain_fit,
    "all-reduce": lambda cells, epochs: cells.train(f"--workers {WORKERS}", epochs),
    "average": lambda cells, epochs: cells.train(f"--workers {WORKERS} --strategy average", epochs),
    "1 worker": lambda cells, epochs: cells.train("--workers 1", max(2, epochs // 4)),
    "1 worker, average": lambda cells, epochs: cells.train("--workers 1 --strategy average", max(2, epochs // 4)),
    "plain loop": _plain_loop,
    "search": lambda cells, epochs: (cells.search(epochs),),
}


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("first_gain", __doc__, "one short round")
    command.add_rounds(parser, ROUNDS)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"of a fit and of a trial; {EPOCHS}")
    parser.add_argument("--write", action="store_true", help="write the figures into README.md and docs/faster.md")
    options = parser.parse_args(arguments)
    before = report.machine()
    print(before)
    processes.start_session()
    epochs = QUICK_EPOCHS if options.quick else options.epochs
    with tempfile.TemporaryDirectory(prefix="ddl-first-gain-") as folder:
        os.environ["JUPYTER_DATA_DIR"] = folder
        os.chdir(folder)
        cells, fits, accuracies, scaling = measure(command.rounds(options, ROUNDS, QUICK_ROUNDS), epochs)
    print("Seconds of a cell, its start included\n" + report.spread(cells, "s"))
    print("\nSeconds of fit\n" + report.spread(fits, "s"))
    print("\nAccuracy on held-out digits\n" + report.spread(accuracies, "") + "\n")
    for gbit in LINKS_GBIT:
        predicted = scaling.predict(workers=2, gbit=gbit, strategy="allreduce")
        print(f"Two machines, a link of {gbit} Gbit/s, predicted\n{predicted}\n")
    print(f"Two machines, predicted\n{scaling.predict(workers=2, per_host=1, strategy='average')}\n")
    rounds = counted(len(cells["plain fit"]), "round")
    text = f"{table(cells, accuracies, scaling)}\n\n{before}, before; {epochs} epochs; medians of {rounds}; "
    text += "times as fast: the median of the rounds' ratios. "
    text += "For two machines on a link of 1 Gbit/s, `%ddl scale` predicts the speed-up over one worker."
    print(text)
    for page in PAGES if options.write else ():
        page.write_text(FIGURES.sub(lambda found: f"{found[1]}{text}\n\n{found[2]}", page.read_text()))
    report.finish(
        {**{f"{name}, cell": seconds for name, seconds in cells.items()},
         **{f"{name}, fit": seconds for name, seconds in fits.items()}},
        [report.at_least("average by plain fit", ratio(cells, "average", "plain fit"), 1.0),
         report.at_least("search by plain loop", ratio(cells, "search", "plain loop"), 1.0)],
        machine_before=before, accuracies=accuracies,
    )  # fmt: skip


def table(cells: Samples, accuracies: Samples, scaling: ScalingReport) -> str:
    """The figures as a Markdown table."""
    predicted = {
        "all-reduce": scaling.predict(workers=2, gbit=1, strategy="allreduce"),
        "average": scaling.predict(workers=2, per_host=1, strategy="average"),
    }
    lines = ["| on two cores | seconds | times as fast | accuracy | two machines, predicted |", "|---|---|---|---|---|"]
    for name, (title, slow) in ROWS.items():
        right = f"{median(accuracies[name]):.1%}" if name in accuracies else ""
        faster = f"{ratio(cells, name, slow):.2f}" if slow else ""
        there = f"{predicted[name].rows[0].speedup:.2f} times as fast" if name in predicted else ""
        lines.append(f"| {title} | {median(cells[name]):.1f} | {faster} | {right} | {there} |")
    return "\n".join(lines)


def ratio(cells: Samples, fast: str, slow: str) -> float:
    """How many times as fast: the median over the rounds."""
    return median(theirs / ours for ours, theirs in zip(cells[fast], cells[slow], strict=True))


if __name__ == "__main__":
    main()
