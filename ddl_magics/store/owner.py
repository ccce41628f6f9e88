"""The process that owns a run, and whether it is still alive."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

HEARTBEAT_SECONDS = 5.0
#: An owner on another host, or without /proc, counts as dead after this time without a heartbeat.
SILENCE_SECONDS = 60.0


#: How long a comparison of two clocks is valid.
CLOCK_SECONDS = 60.0

_clocks: dict[Path, tuple[float, float]] = {}  # folder -> (when they were compared, the result)


class Owner(TypedDict):
    """What `owner.json` holds. `start` is that of `started`, `heartbeat` in seconds since the epoch."""

    host: str
    pid: int
    start: str | None
    heartbeat: float


def this_process() -> Owner:
    return process(os.getpid())


def process(pid: int) -> Owner:
    """A process of this host."""
    return {"host": socket.gethostname(), "pid": pid, "start": started(pid), "heartbeat": time.time()}


def is_this_process(owner: Mapping[str, Any]) -> bool:
    """Whether an `owner.json` names this process."""
    return is_process(owner, this_process())


def is_process(owner: Mapping[str, Any], process: Mapping[str, Any]) -> bool:
    """Whether an `owner.json` names this process, which may have ended."""
    return all(owner.get(name) == process.get(name) for name in ("host", "pid", "start"))


def started(pid: int) -> str | None:
    """The start of a process as boot id and clock ticks: equal only for the same process. None if unknown."""
    try:
        boot = _boot()
        # The second field is the program's name in brackets, which may contain spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # A zombie has ended; only its exit status waits for its parent.
        return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    except (OSError, IndexError):
        return None


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def alive(owner: Mapping[str, Any], file: Path) -> bool:
    """Whether the owner's process is alive. owner: of an `owner.json`, which may be damaged; file: its path."""
    try:
        pid = int(owner["pid"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return False
    if owner.get("host") == socket.gethostname() and owner.get("start") and started(os.getpid()):
        return started(pid) == str(owner["start"])
    try:
        return time.time() + _clock_ahead(file.parent.parent) - file.stat().st_mtime < SILENCE_SECONDS
    except OSError:
        return False


def number_of(owner: Mapping[str, Any]) -> int | None:
    """The number of the owner's process on this machine, to send it a signal; None where another process may have it.

    owner: of an `owner.json`, which may be damaged: as an argument of `kill`, -1 and 0 are many processes.
    """
    pid, start = owner.get("pid"), owner.get("start")
    if type(pid) is not int or not 0 < pid < 2**31:
        return None
    if started(os.getpid()) is None:  # a system that does not tell
        return pid
    return pid if start and started(pid) == start else None


def _clock_ahead(folder: Path) -> float:
    """Seconds by which the clock of a folder's file server is ahead of this host's: clocks of hosts differ."""
    measured_at, seconds = _clocks.get(folder, (-CLOCK_SECONDS, 0.0))
    if time.monotonic() - measured_at > CLOCK_SECONDS:
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.") as probe:
                seconds = os.fstat(probe.fileno()).st_mtime - time.time()
        except OSError:  # the folder cannot be written
            seconds = 0.0
        _clocks[folder] = time.monotonic(), seconds
    return seconds
