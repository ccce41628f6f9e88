"""Compares this checkout with another commit: both run a benchmark in turn, and the ratio of their medians is printed.

    python -m benchmarks.compare_commits b1 b6 --against COMMIT [--pairs N] [--quick]

The commit is extracted into a temporary folder, and each side runs its own `benchmarks` in this environment (the same
Python and packages). A pair is one run of each side; the order changes from pair to pair, so that a drift of the
machine meets both alike. Only variants that both sides have are compared. Those that do not depend on the commit
("2 x Keras", "bare") are controls: their ratio should be 1.

The ratio is this checkout's by the commit's, of medians over the samples of all pairs. Its 95 % interval is by
bootstrap over the pairs, as the samples of one run are not independent of each other.
"""

from __future__ import annotations

import compileall
import io
import json
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from . import SHORT_NAMES
from .harness import command, report
from .harness.json_process import ROOT

PAIRS, QUICK_PAIRS = 8, 1
#: Benchmark -> arguments of each run, which the other commit must know too; --quick where there are none.
ARGUMENTS = {"b1": ["--only", "ours", "2 x Keras", "--threads", "pinned", "--rounds", "5"]}
QUICK_ARGUMENTS = {"b1": ["--only", "ours", "2 x Keras", "--threads", "pinned", "--rounds", "1"]}
#: Built and not committed; an extracted commit gets this checkout's.
BUILT = ("ddl_magics/dashboard/static", "ddl_magics/labextension", ".venv-bench")

#: Variant -> samples of one run.
Samples = dict[str, list[float]]


class Side(NamedTuple):
    """One of the two that are compared."""

    name: str
    folder: Path


class Pair(NamedTuple):
    """The samples of a variant in one run of this checkout and one of the commit."""

    here: list[float]
    there: list[float]


def extract(commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder. SystemExit if there is no such commit."""
    archive = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True)
    if archive.returncode:
        raise SystemExit(f"compare_commits: {archive.stderr.decode().strip()}: name a commit of this repository")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    for path in BUILT:
        if (ROOT / path).exists() and not (folder / path).exists():
            (folder / path).symlink_to(ROOT / path)
    compileall.compile_dir(folder / "ddl_magics", quiet=1)  # as this checkout is compiled already


def describe(commit: str) -> str:
    """The short hash of a commit."""
    shown = subprocess.run(["git", "rev-parse", "--short", commit], cwd=ROOT, capture_output=True, text=True)
    return shown.stdout.strip() or commit


def environment(side: Side) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(side.folder)}


def check(side: Side) -> None:
    """SystemExit if Python would import another ddl_magics than the side's."""
    found = subprocess.run(
        [sys.executable, "-c", "import ddl_magics; print(ddl_magics.__file__)"],
        cwd=side.folder,
        env=environment(side),
        capture_output=True,
        text=True,
    )
    if found.returncode or not Path(found.stdout.strip()).is_relative_to(side.folder):
        raise SystemExit(f"compare_commits: {side.name} imports another ddl_magics: {found.stdout}{found.stderr}")


def run(benchmark: str, arguments: Sequence[str], side: Side) -> Samples:
    """The samples of one run. SystemExit if it fails."""
    print(f"{benchmark}, {side.name}", file=sys.stderr, flush=True)
    ended = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{benchmark}", *arguments],
        cwd=side.folder,
        env=environment(side),
        stdout=subprocess.PIPE,
        text=True,
    )
    if ended.returncode:
        raise SystemExit(
            f"compare_commits: {benchmark} of {side.name} ended with exit status {ended.returncode}; "
            "see its message above"
        )
    record = json.loads(ended.stdout.splitlines()[-1])
    samples: Samples = record["samples"]
    more: Samples = record.get("cpu_ms_per_step", {})
    found = {**samples, **{f"{name}, CPU ms/step": values for name, values in more.items()}}
    return {name.replace("--no-spare", "--no-prewarm"): values for name, values in found.items()}  # renamed since 0.1.0


def measure(benchmark: str, arguments: Sequence[str], here: Side, there: Side, pairs: int) -> dict[str, list[Pair]]:
    """Variant -> its pairs."""
    found: dict[str, list[Pair]] = defaultdict(list)
    for number in range(pairs):
        order = (here, there) if number % 2 else (there, here)
        runs = {side: run(benchmark, arguments, side) for side in order}
        for name in runs[here]:
            if name in runs[there]:
                found[name].append(Pair(runs[here][name], runs[there][name]))
    if not found:
        raise SystemExit(f"compare_commits: {benchmark} has no variant in common on both sides")
    return found


def medians(pairs: Sequence[Pair]) -> tuple[float, float]:
    """The medians over the samples of all pairs: this checkout's and the commit's."""
    return (
        median([value for pair in pairs for value in pair.here]),
        median([value for pair in pairs for value in pair.there]),
    )


def ratio(pairs: Sequence[Pair]) -> float:
    """The median of this checkout by that of the commit."""
    here, there = medians(pairs)
    return here / there


def table(found: dict[str, list[Pair]], here: Side, there: Side) -> str:
    rows = []
    for name, pairs in found.items():
        low, high = report.interval(pairs, ratio)
        rows.append((name, len(pairs), *medians(pairs), ratio(pairs), low, high))
    return report.table(("median of", "pairs", here.name, there.name, "ratio", "95 % from", "to"), rows)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("compare_commits", __doc__, "one short pair")
    names = parser.add_argument("benchmarks", nargs="+", choices=SHORT_NAMES, metavar="BENCHMARK")
    names.help = f"some of: {', '.join(SHORT_NAMES)}"
    parser.add_argument("--against", required=True, metavar="COMMIT", help="what this checkout is compared with")
    parser.add_argument("--pairs", type=int, default=None, metavar="N", help=f"runs of each side; {PAIRS} by default")
    options = parser.parse_args(arguments)
    before, samples = report.machine(), {}
    with tempfile.TemporaryDirectory(prefix="ddl-compare-") as folder:
        here, there = Side("this checkout", ROOT), Side(describe(options.against), Path(folder).resolve())
        extract(options.against, there.folder)
        for side in (here, there):
            check(side)
        for benchmark in options.benchmarks:
            given = (QUICK_ARGUMENTS if options.quick else ARGUMENTS).get(benchmark, ["--quick"])
            pairs = options.pairs or (QUICK_PAIRS if options.quick else PAIRS)
            found = measure(benchmark, given, here, there, pairs)
            print(f"{shlex.join([benchmark, *given])}\n{table(found, here, there)}\n", flush=True)
            for name, each in found.items():
                samples[f"{benchmark}, {name}, {here.name}"] = [value for pair in each for value in pair.here]
                samples[f"{benchmark}, {name}, {there.name}"] = [value for pair in each for value in pair.there]
    report.finish(samples, [], machine_before=before)


if __name__ == "__main__":
    main()
