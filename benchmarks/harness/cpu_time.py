"""The CPU time of everything that a benchmark has started."""

from __future__ import annotations

import time

import psutil


def so_far() -> float:
    """Seconds of user and system time of this process and all below it, those that have ended among them."""
    own = psutil.Process()
    total = time.process_time() + _of_ended(own)
    for process in own.children(recursive=True):
        try:
            times = process.cpu_times()
            total += times.user + times.system + _of_ended(process)
        except psutil.NoSuchProcess:
            continue  # it has ended meanwhile
    return total


def _of_ended(process: psutil.Process) -> float:
    """That of its children that have ended."""
    times = process.cpu_times()
    return float(times.children_user + times.children_system)
