"""Growth of memory and disk of a run of a month by 256 workers, watched and unwatched, in simulated time.

    python -m benchmarks.long_run [--quick]

The driver's log, the kernel's follower with a live view, the run's folder and the panel's server are those of the
product; ranks, network and clock are simulated. Each rank reports its steps and a sample every five minutes (a day) or
every ten (a month) instead of every second: how much is kept depends on the number of events, and a day has almost
twice as many as are kept. An epoch takes ten minutes, or an hour. "Watched" is with a notebook that polls, a live view
and a page of the panel; otherwise the driver is alone. Memory is that of the objects, without the interpreter.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.endless import EndlessRun

from .harness import command, report

WORKERS = 256
DAY = 86_400
#: A report has about so many bytes, and a rank makes two a second.
REPORT_BYTES, REPORTS_PER_SECOND = 300, 2
#: MB of the driver, the kernel, the server and the folder, however long the run.
MOST = {"driver": 60.0, "kernel": 120.0, "server": 10.0, "disk": 130.0}


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    quick = command.parser("long_run", __doc__, "a day instead of a month").parse_args(arguments).quick
    before = report.machine()
    seconds, every, epoch = (DAY, 300, 600) if quick else (30 * DAY, 600, 3600)
    samples: dict[str, list[float]] = {}
    goals = []
    for watched in (False, True):
        how = "watched" if watched else "unwatched"
        with tempfile.TemporaryDirectory(prefix="long-run-") as folder:
            os.environ["JUPYTER_DATA_DIR"] = str(Path(folder) / "data")
            run = EndlessRun(WORKERS, every, epoch, watched)
            for who, size in _sizes(run, seconds):
                samples.setdefault(f"{who}, {how}", []).append(size)
    print(f"machine: {before}")
    print(f"{WORKERS} workers, {seconds / DAY:g} simulated days; MB after a tenth of them, two tenths, and so on\n")
    for name, sizes in samples.items():
        print(f"{name:<20}" + "".join(f"{size:8.1f}" for size in sizes))
        goals.append(report.at_most(f"{name}, largest, MB", max(sizes), MOST[name.partition(",")[0]]))
    all_of_them = seconds * WORKERS * REPORTS_PER_SECOND * REPORT_BYTES / 1e9
    print(f"\nall reports of such a run, one of each kind a second, would be {all_of_them:.0f} GB\n")
    report.finish(samples, goals, machine_before=before)


def _sizes(run: EndlessRun, seconds: int) -> Iterator[tuple[str, float]]:
    """(who, MB) ten times in the course of the run."""
    for _ in range(10):
        run.advance(seconds // 10)
        for who, size in run.held().items():
            yield who, size / 1e6


if __name__ == "__main__":
    main()
