"""Who may start next on a cluster: first come, first served, and only when there are slots enough."""

from __future__ import annotations

import threading


class Turns:
    """The runs of this kernel on one cluster. A run that cannot start yet also holds back those behind it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._running: dict[str, int] = {}

    def join(self, run: str) -> None:
        with self._lock:
            self._waiting.append(run)

    def take(self, run: str, workers: int, slots: int, free: int) -> bool:
        """Whether the run may start now; if so, its slots count as taken until `leave`.

        Args:
            run: a run that has joined.
            workers: slots that it needs.
            slots: slots that the cluster has.
            free: slots that the cluster reports as free, which lags behind launches.
        """
        with self._lock:
            if self._waiting[0] != run or workers > min(free, slots - sum(self._running.values())):
                return False
            self._waiting.remove(run)
            self._running[run] = workers
            return True

    def hold(self, run: str, workers: int) -> None:
        """A run that was found running holds its slots until `leave`."""
        with self._lock:
            self._running[run] = workers

    def ahead(self, run: str) -> list[str]:
        """The runs that hold slots or are before this one."""
        with self._lock:
            before = self._waiting[: self._waiting.index(run)] if run in self._waiting else []
            return [*(r for r in self._running if r != run), *before]

    def leave(self, run: str) -> None:
        """The run is over, or was given up while it waited."""
        with self._lock:
            self._running.pop(run, None)
            if run in self._waiting:
                self._waiting.remove(run)
