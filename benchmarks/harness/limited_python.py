"""A Python for Spark's executors that has a part of a core, so that more of them than cores do not slow each other."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Short to the steps of a training: a worker that has used its part of a period waits for the next one.
PERIOD_US = 5000
#: For the executors' processes to end.
END_SECONDS = 30.0
_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")


def obstacle() -> str:
    """Why this process cannot limit others and what to do, in one line; empty if it can."""
    if os.geteuid():
        return "a limit of CPU time needs root: run the command with sudo"
    if not _V1.exists() and not (_V2 / "cgroup.controllers").exists():
        return "no cgroups: mount them at /sys/fs/cgroup"
    return ""


@contextmanager
def limited_python(cores: float) -> Iterator[Path]:
    """A command that runs this Python with so many cores; each call has a limit of its own, for all that it starts."""
    quota = round(cores * PERIOD_US)
    if _V1.exists():
        limits = [f"echo {PERIOD_US} > $group/cpu.cfs_period_us", f"echo {quota} > $group/cpu.cfs_quota_us"]
        base, members = _V1 / _own_group(), "tasks"
    else:
        limits, base, members = [f"echo '{quota} {PERIOD_US}' > $group/cpu.max"], _V2, "cgroup.procs"
    name = f"ddl{os.getpid()}-"
    group = [f"group={base}/{name}$$", "mkdir $group", *limits, f"echo $$ > $group/{members}"]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "python"
        script.write_text("\n".join(["#!/bin/sh", "set -e", *group, f'exec {sys.executable} "$@"', ""]))
        script.chmod(0o700)
        try:
            yield script
        finally:
            until = time.monotonic() + END_SECONDS
            while left := [made for made in base.glob(f"{name}*") if not _removed(made)]:
                if time.monotonic() > until:
                    raise RuntimeError(f"processes did not end in {END_SECONDS:.0f} s: {left}")
                time.sleep(0.1)


def _own_group() -> str:
    """The path of this process' group of the CPU controller, below its root."""
    groups = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    return next(path for _, names, path in groups if "cpu" in names.split(",")).lstrip("/")


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:  # a process of it goes on
        return False
    return True
