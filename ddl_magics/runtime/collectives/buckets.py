"""All-reduces in buckets during the backward pass: the first gradients travel while the others are still computed.

The idea is that of PyTorch's DistributedDataParallel (Li et al. 2020, "PyTorch Distributed", section 3.2).
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Callable, List, Sequence

from .announcement import Announcement
from .collective import Collective, Timings

#: A bucket has at least so many bytes, as each costs every rank some round trips. A step has at most so many buckets:
#: with overlap a rank waits only for the last one, and more buckets would hardly make that smaller.
MIN_BUCKET_BYTES, MAX_BUCKETS = 512 << 10, 8

#: Sums one bucket, by a call of a `Collective`; returns the announcements of all ranks.
Work = Callable[[], List[Announcement]]


def plan(sizes: Sequence[int]) -> list[list[int]]:
    """The buckets, as lists of indices into `sizes`: bytes of each array, in the order in which they are computed."""
    smallest = max(MIN_BUCKET_BYTES, sum(sizes) / MAX_BUCKETS)
    buckets: list[list[int]] = []
    room = 0.0
    for index, size in enumerate(sizes):
        if room <= 0:
            buckets.append([])
            room = smallest
        buckets[-1].append(index)
        room -= size
    return buckets


class Buckets:
    """Runs the all-reduces of a rank's steps in order, in a thread that starts and ends with each step.

    All ranks must submit in the same order. Between the first `submit` and `wait` nobody else may use the collective.
    waited: seconds that the last `wait` took; timings: where they went. hidden: seconds of moving data before it.
    """

    def __init__(self, collective: Collective) -> None:
        self._collective = collective
        self._thread: threading.Thread | None = None
        self.waited, self.timings, self.hidden = 0.0, Timings(), 0.0

    def submit(self, work: Work) -> None:
        """Queues `work` behind all earlier work, and returns at once."""
        if self._thread is None:
            self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
            self._announcements: list[list[Announcement]] = []
            self._failure: BaseException | None = None
            self._working = Timings()
            self._thread = threading.Thread(target=self._run, name="all-reduce", daemon=True)
            self._thread.start()
        self._queue.put(work)

    def wait(self) -> list[list[Announcement]]:
        """Ends a step: waits for all its buckets, and returns the announcements of all ranks for each of them.

        Raises the exception of the first work that failed; no work starts after it. As in a collective, a slow rank is
        waited for until the collective is closed.
        """
        if self._thread is None:
            return []
        start = time.perf_counter()
        self._queue.put(None)
        self._thread.join()
        self._thread = None
        self.waited = time.perf_counter() - start
        self.timings = _scaled(self._working, self.waited)
        self.hidden = max(0.0, _moving(self._working) - _moving(self.timings))
        if self._failure is not None:
            raise self._failure
        return self._announcements

    def _run(self) -> None:
        for work in iter(self._queue.get, None):
            try:
                self._announcements.append(work())
            except BaseException as error:
                self._failure = error
                return
            self._working = Timings(*map(sum, zip(self._working, self._collective.timings)))


def _scaled(timings: Timings, seconds: float) -> Timings:
    """`seconds` in the proportions of `timings`, those of the thread in the whole step."""
    total = sum(timings)
    return Timings(*(duration * seconds / total for duration in timings)) if total else Timings(wait=seconds)


def _moving(timings: Timings) -> float:
    return timings.copy + timings.wire
