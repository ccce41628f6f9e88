"""This machine's cores, memory, disk, packages, and the Python of Spark's local workers; Spark is not called."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: Memory of one worker's process with TensorFlow loaded, before the cell's data and model.
WORKER_BYTES = 600_000_000

#: How long another Python may take to report its version and packages.
ASK_SECONDS = 5.0

_ASK = (
    "import importlib.util as u, json, sys; print(json.dumps([list(sys.version_info[:2]), "
    "[n for n in ('numpy', 'tensorflow') if u.find_spec(n) is None]]))"
)
#: Limits of a container, for version 2 and version 1 of Linux' control groups.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True)
class WorkersPython:
    """The Python that Spark starts for tasks on this machine. missing: packages that a worker needs."""

    path: str
    version: tuple[int, int]
    missing: tuple[str, ...]

    @property
    def problem(self) -> str | None:
        """Why it cannot train this kernel's cells, or None."""
        kernel_version = sys.version_info[:2]
        if self.version != kernel_version:
            return f"is Python {_dotted(self.version)}, and this kernel's is {_dotted(kernel_version)}"
        return f"has no {' and no '.join(self.missing)}" if self.missing else None


def cores() -> int:
    return os.cpu_count() or 1


def memory() -> int | None:
    """Bytes of memory of this machine or its container, or None if unknown."""
    try:
        limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None
    for path in _LIMITS:
        try:
            limits.append(int(path.read_text()))
        except (OSError, ValueError):  # there is no such file, or it says "max"
            continue
    return min(limits)


def free_disk() -> int:
    """Free bytes where temporary files are written."""
    return shutil.disk_usage(tempfile.gettempdir()).free


def installed(*distributions: str) -> str | None:
    """The version of the first of these distributions that is installed for this Python; None without any."""
    for name in distributions:
        with suppress(PackageNotFoundError):
            return version(name)
    return None


def version_numbers(text: str, count: int = 2) -> tuple[int, ...]:
    """The first numbers of a version: major, minor, ..."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", text)[:count])


def workers_python(name: str) -> WorkersPython | None:
    """The Python that Spark's `pythonExec` names on this machine; None if it does not run."""
    path = shutil.which(name)
    return None if path is None else _ask(path)


@functools.cache
def _ask(path: str) -> WorkersPython | None:
    try:
        completed = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=ASK_SECONDS, check=True)
        numbers, missing = json.loads(completed.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return WorkersPython(path, (numbers[0], numbers[1]), tuple(missing))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
