"""An epoch over a share of 4 times the memory that its process may use, against one whose share is in memory.

    python -m benchmarks.beyond_memory [--quick]

The share has rows of 30 numbers and a label. One process after the other reads it in batches of 256 by a loop in a
tf.function: the first without a bound, its second epoch counts, whose pages are all in the page cache; the second in a
control group whose memory, page cache included, is a quarter of the share, after the share's pages were dropped. Wants
root, and control groups of version 1 or 2.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import data_feeding
from .harness import command, report
from .harness.json_process import JsonProcess, ask, close, cpu_environment, module_command

BATCH = 256
WIDTH = 30
ROW_BYTES = 4 * WIDTH + 8
SHARE_BYTES, QUICK_BYTES = 4 << 30, 64 << 20
TIMES_MEMORY = 4
#: Less does not suffice for TensorFlow.
LEAST_MEMORY = 1 << 30
GOAL_RATIO = 1.5
GROUPS = Path("/sys/fs/cgroup")


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """The file that takes the processes of a new control group with this bound on its memory."""
    first = GROUPS / "memory" if (GROUPS / "memory").is_dir() else GROUPS
    group = first / f"beyond-memory-{os.getpid()}"
    try:
        group.mkdir()
        name = "memory.limit_in_bytes" if first != GROUPS else "memory.max"
        (group / name).write_text(str(limit))
    except OSError as error:
        raise SystemExit(f"beyond_memory: it cannot make a control group in {first}: {error}") from None
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def drop_pages(folder: Path) -> None:
    """Take the files out of the page cache: their pages are then those of whoever reads them next."""
    for file in folder.iterdir():
        opened = os.open(file, os.O_RDONLY)
        os.fsync(opened)
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(opened)


def epoch(folder: Path, epochs: int, group: Path | None = None) -> dict[str, float]:
    """The `Times` of the last of some epochs in a new process. group: the file that takes its number."""
    process = JsonProcess(module_command("share_reader", data_feeding.OURS), cpu_environment(one_thread=False))
    if group is not None:
        group.write_text(str(process.pid))
    times: dict[str, float] = {}
    try:
        for _ in range(epochs):
            (times,) = ask([process], {"folder": str(folder), "batch": BATCH, "in_graph": True})
    finally:
        close([process])
    return times


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("beyond_memory", __doc__, "few rows, all in memory")
    options = parser.parse_args(arguments)
    before = report.machine()
    size = QUICK_BYTES if options.quick else SHARE_BYTES
    limit = max(LEAST_MEMORY, size // TIMES_MEMORY)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as temporary:  # /tmp may be memory
        folder = Path(temporary)
        data_feeding.write_share(folder, size // ROW_BYTES, WIDTH)
        print("written", file=sys.stderr)
        inside = epoch(folder, 2)
        drop_pages(folder)
        with memory_group(limit) as group:
            beyond = epoch(folder, 1, group)
    samples = {"all in memory": [inside["seconds"]], f"memory of {limit / size:.2f} of the share": [beyond["seconds"]]}
    print(report.spread(samples, "s"), "\n")
    print(report.spread({"CPU": [beyond["cpu"] / inside["cpu"]]}, "ratio"), "\n")
    goals = [
        report.at_most("epoch beyond memory over one in memory", beyond["seconds"] / inside["seconds"], GOAL_RATIO)
    ]
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
