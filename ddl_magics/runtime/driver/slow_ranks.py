"""Which ranks compute more slowly than the others, for a minute: a pure function of their buckets of steps.

Time in which a rank waits for others, or for data, does not count. A rank with more rows a step may take longer.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import Iterable

from ..events import Steps

#: A rank that takes so many times the median of all ranks is slow. Of two ranks, each is compared with the other one.
SLOWER = 1.5
#: So long it has to be slow, in seconds of its training.
SLOW_SECONDS = 60.0
#: A rank's speed is that over this time: one long pause does not last a minute.
PACE_SECONDS = 20.0
#: What a slow rank costs is at least this share of the time of its steps. Others wait for the network, not for it.
LEAST_COST = 0.1


class _Pace:
    """Of one rank, in the fit in progress. compute, rows, steps, seconds: sums over its newest buckets."""

    def __init__(self, fit: int, slow_seconds: float) -> None:
        self.fit, self.slow_seconds = fit, slow_seconds
        self._buckets: deque[Steps] = deque()
        self.compute, self.rows, self.steps, self.seconds = 0.0, 0, 0, 0.0

    def add(self, bucket: Steps) -> None:
        self._buckets.append(bucket)
        self._count(bucket, 1)
        while self.seconds - self._buckets[0].seconds >= PACE_SECONDS:
            self._count(self._buckets.popleft(), -1)

    def _count(self, bucket: Steps, sign: int) -> None:
        self.compute += sign * bucket.compute
        self.rows += sign * bucket.rows
        self.steps += sign * bucket.count
        self.seconds += sign * bucket.seconds


class SlowRanks:
    """Of the ranks that train one model together."""

    def __init__(self) -> None:
        self._paces: dict[int, _Pace] = {}

    def step(self, bucket: Steps) -> float | None:
        """Count a bucket. How many times the median its rank takes, where it has been slow for `SLOW_SECONDS`."""
        pace = self._paces.get(bucket.rank)
        if pace is None or pace.fit != bucket.fit:
            pace = self._paces[bucket.rank] = _Pace(bucket.fit, 0.0 if pace is None else pace.slow_seconds)
        pace.add(bucket)
        times = _times(pace, [candidate for candidate in self._paces.values() if candidate.fit == pace.fit])
        if times is None:
            return None
        if times >= SLOWER and pace.compute * (1 - 1 / times) >= LEAST_COST * pace.seconds:
            pace.slow_seconds += min(bucket.seconds, PACE_SECONDS)
        else:
            pace.slow_seconds = 0.0
        return times if pace.slow_seconds >= SLOW_SECONDS else None

    def forget(self, rank: int) -> None:
        """The rank has ended."""
        self._paces.pop(rank, None)


def _times(pace: _Pace, paces: Iterable[_Pace]) -> float | None:
    """How many times the median of `paces` one of them takes; None where there is nothing to compare."""
    by_row = all(each.rows for each in paces)
    seconds = [each.compute / (each.rows if by_row else each.steps) for each in paces if by_row or each.steps]
    if len(seconds) < 2:
        return None
    median = min(seconds) if len(seconds) == 2 else statistics.median(seconds)
    count = pace.rows if by_row else pace.steps
    return pace.compute / count / median if count and median else None
