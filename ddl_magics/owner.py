"""Who owns a run, and whether that process still lives."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

HEARTBEAT_SECONDS = 5.0
#: An owner that cannot be looked at (another host, no /proc) is dead when it was silent for so long.
SILENCE_SECONDS = 60.0


def this_process() -> dict[str, Any]:
    """What `owner.json` holds."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "start": started(pid), "heartbeat": time.time()}


def started(pid: int) -> str | None:
    """When the process started, as boot and clock ticks: equal only for the same process. None where unknown."""
    try:
        boot = _boot()
        # The second field is the program's name in brackets, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # A zombie's owner has not asked yet how it ended; it does nothing any more.
        return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    except (OSError, IndexError):
        return None


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def alive(owner: Mapping[str, Any]) -> bool:
    """Whether the process that an `owner.json` names still lives."""
    try:
        pid, heartbeat = int(owner["pid"]), float(owner["heartbeat"])
    except (KeyError, TypeError, ValueError):
        return False
    if owner.get("host") == socket.gethostname() and owner.get("start") and started(os.getpid()):
        return started(pid) == owner["start"]
    return time.time() - heartbeat < SILENCE_SECONDS
