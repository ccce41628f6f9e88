"""What a rank's view of the notebook's folder costs: to make it, to change a file in it, to find what changed.

    python -m benchmarks.working_folder [--quick] [--rounds N]

The folder has 10 or 100,000 files of 1 KB, a thousand in each of its folders, all in the page cache. "overlay" and
"mirror" are the two ways of runtime/files, each sample in a process of its own. "copy" is the peer: `shutil.copytree`,
with which each rank would have files of its own. "remembered" is what the driver does at a run's start, to replace no
file that changes meanwhile (runs/cell_files.py).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from ddl_magics.runs.cell_files import FolderState

from .harness import command, report
from .harness.json_process import JsonProcess, module_command
from .harness.rounds import rotated

FILES, QUICK_FILES = (10, 100_000), (10, 2_000)
IN_A_FOLDER = 1_000
ROUNDS, QUICK_ROUNDS = 7, 1
WAYS = ("overlay", "mirror")
STEPS = ("made", "a file changed", "changes found")
COPY, REMEMBERED = "copy", "remembered"
#: An overlay is made as fast however many files there are, but for so many milliseconds.
GOAL_MS = 10.0


def fill(folder: Path, files: int) -> None:
    for number in range(files):
        inner = folder / str(number // IN_A_FOLDER)
        inner.mkdir(parents=True, exist_ok=True)
        (inner / f"{number % IN_A_FOLDER}.csv").write_bytes(b"0.25,0.5\n" * 114)


def view(way: str, notebook: Path, scratch: Path) -> list[float]:
    """Milliseconds of STEPS."""
    process = JsonProcess(module_command("rank_folder", notebook, scratch, way))
    times: list[float] = process.receive()
    process.close_input()
    process.wait()
    return times


def timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - begun)


def measure(rounds: int, files: int) -> dict[str, list[float]]:
    """{variant: milliseconds of each round}."""
    samples: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        notebook, scratch = Path(place, "notebook"), Path(place, "scratch")
        fill(notebook, files)
        for number in range(-1, rounds):  # the first round warms up
            for name in rotated((*WAYS, COPY, REMEMBERED), number):
                scratch.mkdir()
                if name in WAYS:
                    steps = zip(STEPS, view(name, notebook, scratch), strict=True)
                    times = {f"{name}: {step}": ms for step, ms in steps}
                elif name == COPY:
                    times = {name: timed(lambda: shutil.copytree(notebook, scratch / "copy"))}
                else:
                    times = {name: timed(lambda: FolderState.of(notebook))}
                shutil.rmtree(scratch)
                for variant, ms in times.items() if number >= 0 else ():
                    samples.setdefault(f"{files} files, {variant}", []).append(ms)
            print(f"{files} files, round {number + 1} of {rounds}", file=sys.stderr)
    return samples


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("working_folder", __doc__, "fewer files")
    command.add_rounds(parser, ROUNDS)
    options = parser.parse_args(arguments)
    before = report.machine()
    rounds, counts = command.rounds(options, ROUNDS, QUICK_ROUNDS), QUICK_FILES if options.quick else FILES
    samples = {name: values for files in counts for name, values in sorted(measure(rounds, files).items())}
    print(report.spread(samples, "ms"), "\n")
    few, many = (median(samples[f"{files} files, overlay: made"]) for files in counts)
    goals = [report.at_most(f"ms more for an overlay of {counts[1]} files than of {counts[0]}", many - few, GOAL_MS)]
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
