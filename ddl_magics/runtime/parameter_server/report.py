"""What a worker reports of its commits: how many in what time, and how stale they were."""

from __future__ import annotations

import time
from typing import TypedDict

REPORT_SECONDS = 1.0


class CommitFields(TypedDict):
    """Of a "commits" event (events.py)."""

    commits: int
    #: Mean and maximum, in commits.
    staleness: float
    staleness_max: int
    #: Since the report before.
    seconds: float
    #: Element b counts the commits whose staleness has b binary digits: 0, 1, 2 to 3, 4 to 7, ...
    histogram: list[int]


class CommitReport:
    """Gathers commits into the fields of an event."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._began = time.monotonic()
        self._commits = self._sum = self._max = 0
        self._histogram: list[int] = []

    @property
    def due(self) -> bool:
        return self._commits > 0 and time.monotonic() - self._began >= REPORT_SECONDS

    def add(self, staleness: int) -> None:
        """Count a commit. staleness: commits of other workers between its centre and it, from 0."""
        self._commits += 1
        self._sum += staleness
        self._max = max(self._max, staleness)
        bucket = staleness.bit_length()
        self._histogram += [0] * (bucket + 1 - len(self._histogram))
        self._histogram[bucket] += 1

    def take(self) -> CommitFields | None:
        """The event's fields since the last call, or None if there was no commit."""
        fields: CommitFields | None = None
        if self._commits:
            fields = {
                "commits": self._commits,
                "staleness": self._sum / self._commits,
                "staleness_max": self._max,
                "seconds": round(time.monotonic() - self._began, 6),
                "histogram": self._histogram,
            }
        self._reset()
        return fields
