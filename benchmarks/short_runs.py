"""Short runs one after another in a session, as a search makes them: seconds and CPU seconds of each.

    python -m benchmarks.short_runs [--quick]

The cluster, the workers and the model are those of launch_time (b6), and each run is one epoch. A later run of ours
is a fork of a process that has imported TensorFlow; `--no-prewarm` starts each rank from nothing. Two peers train the
same: a barrier job in the Python processes of Spark ("bare"), in which everything of the job before is still loaded,
and a Python process for each run, which trains alone.

A series is some runs one after another, without a pause. The first run of a session is left out. CPU seconds are those
of the whole machine, so that nothing else may run; work that a run leaves behind counts for the next one. The variants
alternate in random order.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from support import processes

from .harness import command, report
from .launch_time import TRAINING, Sessions

SERIES, QUICK_SERIES = 6, 1
RUNS, QUICK_RUNS = 5, 2


class Series(NamedTuple):
    """What a run of a series takes on average."""

    seconds: float
    cpu_seconds: float


def cpu_seconds() -> float:
    """User and system time of all processors since the machine was started."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def series(run: Callable[[], object], runs: int) -> Series:
    """Make `runs` runs one after another, after one that is not measured."""
    run()
    began, used = time.monotonic(), cpu_seconds()
    for _ in range(runs):
        run()
    return Series((time.monotonic() - began) / runs, (cpu_seconds() - used) / runs)


def _alone(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    text = TRAINING.replace("FOLDER", str(folder)).replace("RANK", "0")
    subprocess.run([sys.executable, "-c", text], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(count: int, runs: int) -> dict[str, list[Series]]:
    """Variant -> its series."""
    measured: dict[str, list[Series]] = defaultdict(list)
    processes.start_session()
    with tempfile.TemporaryDirectory(prefix="ddl-short-runs-") as folder:
        os.environ["JUPYTER_DATA_DIR"] = folder
        times = Path(folder) / "times"
        sessions = Sessions(times)
        variants: dict[str, Callable[[], object]] = {
            "ours": sessions.ours,
            "ours, --no-prewarm": lambda: sessions.ours("--no-prewarm"),
            "bare": sessions.bare,
            "a process each, alone": lambda: _alone(times),
        }
        try:
            for _ in range(count):
                for name in random.sample(list(variants), len(variants)):
                    sessions.begin()
                    found = series(variants[name], runs)
                    measured[name].append(found)
                    print(f"{name}: {found.seconds:.2f} s, {found.cpu_seconds:.2f} s of CPU", file=sys.stderr)
        finally:
            sessions.close()
    return measured


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    quick = command.parser("short_runs", __doc__, "one short series of each").parse_args(arguments).quick
    before = report.machine()
    print(before)
    measured = measure(QUICK_SERIES if quick else SERIES, QUICK_RUNS if quick else RUNS)
    seconds = {name: [each.seconds for each in found] for name, found in measured.items()}
    cpu = {name: [each.cpu_seconds for each in found] for name, found in measured.items()}
    print("Seconds of a run\n" + report.spread(seconds, "s"))
    print("\nCPU seconds of a run\n" + report.spread(cpu, "s") + "\n")
    for name in ("ours, --no-prewarm", "bare"):
        print(f"ours by {name}: {median(seconds['ours']) / median(seconds[name]):.2f} of the seconds, "
              f"{median(cpu['ours']) / median(cpu[name]):.2f} of the CPU seconds")  # fmt: skip
    samples = {
        f"{name}, {what}": values for what, of in (("s", seconds), ("cpu s", cpu)) for name, values in of.items()
    }
    report.finish(samples, [], machine_before=before)


if __name__ == "__main__":
    main()
