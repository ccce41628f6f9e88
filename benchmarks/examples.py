"""What the constructs of Keras' examples learn with each strategy, beside plain Keras: the table of docs/examples.md.

    python -m benchmarks.examples [--quick] [--only NAME ...] [--keep FOLDER] [--write]

The examples are the files of tests/equality/examples, trained in float64 without noise on 2 workers of a local Spark. A
loss is that of the last epoch. The difference is the largest one between all-reduce and plain Keras, in all epochs of
all that an example reports and in its final weights; relative where values are above 1.

With --keep FOLDER it can be interrupted: the next call runs only what the folder lacks. --write writes the page.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support import examples, launch, spark

from .harness import command, report

PAGE = Path(__file__).resolve().parent.parent / "docs" / "examples.md"
WORKERS, QUICK = 2, ("convnet", "metric_learning", "record_files")
PLAIN = "plain"
STRATEGIES = ("allreduce", "ps", "average")

HEAD = """# Keras' examples on several workers

<!-- Made by `python -m benchmarks.examples --write`. -->

Each row is a cell with the construct of one of Keras' examples, on a few generated rows: the files of
`tests/equality/examples`, written for this table. They train in float64 and without noise,
on 2 workers, and in plain Keras without this library.

- *plain*, *all-reduce*, *ps* and *average* are the losses of the last epoch; where a cell reports no loss, what it
  reports first. `--strategy ps` and `average` train in another way than one process, and learn something else: the
  numbers of a few steps show that the cell trains, not how well. [Benchmark b5](../benchmarks/README.md) measures that.
- *difference* is the largest one between all-reduce and plain Keras: of all that the cell reports in all epochs, and
  of its final weights, relative where values are above 1. `--strategy allreduce` must be equal to 1e-9; cells
  that compute in 16 or 32 bits have bounds of their own. A cell that several workers cannot train exactly is refused
  before its first update, and the table has words of the message.
- A cell marked `--sync-batchnorm` has BatchNormalization, and was run with this option.
- In two cells, a line is for several workers: `ddl.distribute` in `tape_loop`, `ddl.all_gather` in
  `contrastive_step_gathered`.

`make test-slow` compares all of them on 2 and 4 workers, with Keras 3 and Keras 2. To add a cell, add a file: it leaves
`model` and `history`, and its docstring says what it is. [support/examples.py](../tests/support/examples.py) lists the
lines of the docstring.

"""

Results = dict[str, dict[str, Any]]


def measure(chosen: list[examples.Example], folder: Path) -> dict[str, Results]:
    """{"plain" or a strategy: {example: result}}; what `folder` has is not run again."""
    found: dict[str, Results] = {}
    clusters = spark.Clusters()
    try:
        for way in (PLAIN, *STRATEGIES):
            file = folder / f"{way}.json"
            found[way] = json.loads(file.read_text()) if file.exists() else {}
            for batch in examples.batched([one for one in chosen if one.name not in found[way]]):
                found[way].update(_run(way, batch, clusters, folder))
                file.write_text(json.dumps(found[way]))
                print(f"{way}: {len(found[way])} of {len(chosen)}", file=sys.stderr)
    finally:
        clusters.stop()
    return found


def _run(way: str, batch: list[examples.Example], clusters: spark.Clusters, folder: Path) -> Results:
    if way == PLAIN:
        return dict(examples.plain(folder / PLAIN, batch))
    try:
        return dict(examples.learn(clusters.get(WORKERS), batch, WORKERS, strategy=way))
    except (AssertionError, TimeoutError, launch.Refused) as error:  # one of them has ended the run
        launch.stop_all()
        if len(batch) == 1:
            return {batch[0].name: {"refused": str(error), "traceback": ""}}
        return {name: one for each in batch for name, one in _run(way, [each], clusters, folder).items()}


def loss(result: dict[str, Any]) -> str:
    """Of the last epoch: "loss", or else what the example reports first."""
    if "refused" in result:
        return "refused"
    history = result["history"]
    name = "loss" if "loss" in history else next(iter(history))
    return f"{history[name][-1]:.6g}"


def difference(example: examples.Example, ours: dict[str, Any], plain: dict[str, Any]) -> str:
    """Of all-reduce to plain Keras, or why there is none."""
    if "refused" in ours:
        return f'"{example.refused.get("allreduce", ["an error"])[0]}"'
    return f"{examples.difference(ours, plain)[0]:.1e}"


def rows(chosen: Iterable[examples.Example], found: dict[str, Results]) -> list[list[str]]:
    """The cells of the table."""
    lines = []
    for one in chosen:
        results = {way: found[way][one.name] for way in found}
        options = "".join(f"; `{flag}`" for flag in one.options)
        losses = [loss(results[way]) for way in (PLAIN, *STRATEGIES)]
        apart = difference(one, results["allreduce"], results[PLAIN])
        lines.append([f"`{one.name}`", f"{one.construct} *{one.like}*{options}", *losses[:2], apart, *losses[2:]])
    return lines


def markdown(lines: Iterable[list[str]]) -> str:
    header = ["example", "construct, and where Keras has it", "plain", "all-reduce", "difference", "ps", "average"]
    every = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in every)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("examples", __doc__, "three examples")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the examples")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="results that are there are not made again")
    parser.add_argument("--write", action="store_true", help="write docs/examples.md")
    options = parser.parse_args(arguments)
    every = examples.found()
    names = options.only or (QUICK if options.quick else list(every))
    chosen = [every[name] for name in names]
    before = report.machine()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        found = measure(chosen, folder)
    table = markdown(rows(chosen, found))
    print(table)
    if options.write:
        PAGE.write_text(HEAD + table)
    wrong = [
        said
        for one in chosen
        if (said := examples.wrong(one, found["allreduce"][one.name], found[PLAIN][one.name])) is not None
    ]
    print("\n".join(wrong))
    goal = report.at_most("examples that all-reduce neither trains as plain Keras nor refuses", len(wrong), 0)
    report.finish({}, [goal], machine_before=before)


if __name__ == "__main__":
    main()
