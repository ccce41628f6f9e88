"""Ranks from which the driver gets nothing: a supervisor sends a sample every second, unless it is frozen, too."""

from __future__ import annotations

#: A rank is reported after so long. A host that does not answer at all is noticed earlier (transport/link_watch.py).
SILENT_SECONDS = 60.0


class Silence:
    """Counts for how long nothing has come from each rank, in seconds in which the driver itself ran.

    Times are of the monotonic clock. The caller has a lock.
    """

    def __init__(self, tick_seconds: float, silent_seconds: float | None = None) -> None:
        """tick_seconds: the interval of `tick`."""
        self._limit = SILENT_SECONDS if silent_seconds is None else silent_seconds
        self._tick_seconds = tick_seconds
        self._ticked: float | None = None
        self.seconds: dict[int, float] = {}  # by rank
        self._noticed: set[int] = set()

    def hear(self, rank: int) -> float | None:
        """Something has come from a rank. The seconds of its silence, if that was noticed."""
        seconds = self.seconds.get(rank, 0.0)
        self.seconds[rank] = 0.0
        if rank not in self._noticed:
            return None
        self._noticed.discard(rank)
        return seconds

    def forget(self, rank: int) -> None:
        """Nothing more is expected from a rank."""
        self.seconds.pop(rank, None)
        self._noticed.discard(rank)

    def tick(self, now: float) -> list[int]:
        """Time has passed. The ranks that are noticed now."""
        passed = min(now - (now if self._ticked is None else self._ticked), 2 * self._tick_seconds)
        self._ticked = now
        for rank in self.seconds:
            self.seconds[rank] += passed
        silent = [
            rank for rank, seconds in self.seconds.items() if seconds >= self._limit and rank not in self._noticed
        ]
        self._noticed.update(silent)
        return silent
