"""The order in which a kernel's runs start on a cluster: first come, first served, when there are enough free slots."""

from __future__ import annotations

import threading


class RunQueue:
    """The runs of this kernel on one cluster. A run that cannot start yet holds back those behind it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        #: Runs that have ended; their results are being fetched.
        self._collecting: set[str] = set()
        #: Run -> the slots that it holds.
        self._running: dict[str, int] = {}
        self._names: dict[str, str] = {}

    def join(self, run: str, name: str = "") -> None:
        """Put the run at the end of the queue."""
        with self._lock:
            self._waiting.append(run)
            self._names[run] = name

    def name(self, run: str) -> str:
        """The name of a run that has joined, or its id."""
        return self._names.get(run) or run

    def take(self, run: str, workers: int, slots: int, free: int) -> bool:
        """Whether the run may start now. If so, it holds its slots until `leave`.

        Args:
            run: a run that has joined.
            workers: slots that it needs.
            slots: slots of the cluster.
            free: free slots that the cluster reports; the report lags behind launches.
        """
        with self._lock:
            return self._start(run, workers, workers <= min(free, slots - sum(self._running.values())))

    def take_alone(self, run: str, workers: int) -> bool:
        """`take` for a run that starts the cluster anew: only when no other run needs what is there."""
        with self._lock:
            return self._start(run, workers, not self._running and not self._collecting)

    def _start(self, run: str, workers: int, has_room: bool) -> bool:
        """Whether the run starts: it is the next, and has room. The lock is held."""
        if self._waiting[0] != run or not has_room:
            return False
        self._waiting.remove(run)
        self._running[run] = workers
        return True

    def hold(self, run: str, workers: int, name: str = "") -> None:
        """Give slots to a run that is running already, until `leave`."""
        with self._lock:
            self._running[run] = workers
            self._names[run] = name

    @property
    def idle(self) -> bool:
        """Whether no run needs the cluster: none holds slots, waits for them, or still fetches its results."""
        with self._lock:
            return not self._waiting and not self._running and not self._collecting

    def ahead(self, run: str) -> list[str]:
        """The runs that hold slots, and those before this one in the queue."""
        with self._lock:
            before = self._waiting[: self._waiting.index(run)] if run in self._waiting else []
            return [*(r for r in self._running if r != run), *before]

    def free(self, run: str) -> None:
        """The run has ended: others may use its slots, while its results are fetched until `leave`."""
        with self._lock:
            self._running.pop(run, None)
            self._collecting.add(run)

    def leave(self, run: str) -> None:
        """The run needs the cluster no more, or was given up while it waited."""
        with self._lock:
            self._running.pop(run, None)
            self._collecting.discard(run)
            self._names.pop(run, None)
            if run in self._waiting:
                self._waiting.remove(run)
