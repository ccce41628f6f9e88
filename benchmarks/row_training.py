"""`fit` on the runtime's dataset, against `train_on_batch` on rows of Python: an epoch from the second one on.

    python -m benchmarks.row_training [--quick] [--rounds N]

The stand-in does what trainers on Spark's RDDs did: each worker makes NumPy arrays of a batch's rows and calls
`train_on_batch`. It has its rows in memory, so that it pays neither Spark's pickling nor a network. 2 workers train a
linear model, batches of 256, at once and without exchange: what bounds an epoch is how rows become batches, and Keras'
own cost of a step. `fit` on one batch, again and again, has the second alone: no way of feeding is faster. Tables: a
million rows of 30 numbers, and 60,000 of 784. Each round has every way once, in an order that changes; the first one
warms up.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

from . import data_feeding
from .harness import command, report
from .harness.json_process import JsonProcess, ask, close, cpu_environment, module_command
from .harness.rounds import rotated

BATCH = 256
WORKERS = 2
ROUNDS, QUICK_ROUNDS = 2, 1
QUICK_SHARE = 50
SHARE, ROWS, BATCH_ALONE = "ours", "rows of Python", "one batch, repeated"
GOAL_RATIO = 3.0


def measure(folders: dict[str, Path], rounds: int) -> data_feeding.Samples:
    """{"TABLE, WAY": seconds of an epoch of the later worker; "TABLE, WAY, CPU": of both}."""
    samples: data_feeding.Samples = {}
    environment = cpu_environment(one_thread=True)
    ways = {
        name: [JsonProcess(module_command("row_trainer", way), environment) for _ in range(WORKERS)]
        for name, way in ((SHARE, "share"), (ROWS, "rows"), (BATCH_ALONE, "batch"))
    }
    try:
        for number in range(-1, rounds):
            for name in rotated(ways, number):
                for table, folder in folders.items():
                    times = ask(ways[name], {"folder": str(folder), "batch": BATCH})
                    if number >= 0:
                        samples.setdefault(f"{table}, {name}", []).append(max(each["seconds"] for each in times))
                        samples.setdefault(f"{table}, {name}, CPU", []).append(sum(each["cpu"] for each in times))
            print(f"training: round {number + 1} of {rounds}", file=sys.stderr)
    finally:
        close([process for each in ways.values() for process in each])
    return samples


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("row_training", __doc__, "few rows, one round")
    command.add_rounds(parser, ROUNDS)
    options = parser.parse_args(arguments)
    before = report.machine()
    share = WORKERS * (QUICK_SHARE if options.quick else 1)
    with tempfile.TemporaryDirectory() as temporary:
        folders = {}
        for table, (rows, width) in data_feeding.TABLES.items():
            folders[table] = Path(temporary) / table
            data_feeding.write_share(folders[table], rows // share, width)
        samples = measure(folders, command.rounds(options, ROUNDS, QUICK_ROUNDS))
    print(report.spread(samples, "s"), "\n")
    goals = [
        report.at_least(
            f"{table}: an epoch on rows of Python over ours",
            median(samples[f"{table}, {ROWS}"]) / median(samples[f"{table}, {SHARE}"]),
            GOAL_RATIO,
        )
        for table in folders
    ]
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
