"""All-reduces beside the computation: while the backward pass makes further gradients, those that are there travel."""

import queue
import threading
import time
from typing import Callable, List, Optional, Sequence

from .collective import Collective, Spent
from .parts import Part

#: A bucket has at least so many bytes, as each costs every rank some round trips, and a step has at most so many: what
#: overlap can win is one bucket less of waiting at its end.
LEAST_BUCKET_BYTES, MOST_BUCKETS = 512 << 10, 8

#: Sums one bucket: a call of a `Collective`.
Work = Callable[[], List[Part]]


def plan(sizes: Sequence[int]) -> List[List[int]]:
    """Which arrays, of so many bytes in the order in which they are made, go into which bucket."""
    least = max(LEAST_BUCKET_BYTES, sum(sizes) / MOST_BUCKETS)
    buckets: List[List[int]] = []
    room = 0.0
    for index, size in enumerate(sizes):
        if room <= 0:
            buckets.append([])
            room = least
        buckets[-1].append(index)
        room -= size
    return buckets


class Buckets:
    """The all-reduces of a rank's steps, one after the other in a thread that lives from a step's first to its last.

    All ranks must submit in the same order. While buckets are under way nobody else may use their collective.
    `waited` are the seconds for which the last `wait` did so, and `spent` where they went.
    """

    def __init__(self, collective: Collective) -> None:
        self._collective = collective
        self._thread: Optional[threading.Thread] = None
        self.waited, self.spent = 0.0, Spent()

    def submit(self, work: Work) -> None:
        """Has `work` done once all that was submitted before is done. Returns at once."""
        if self._thread is None:
            self._queue: "queue.SimpleQueue[Optional[Work]]" = queue.SimpleQueue()
            self._told: List[List[Part]] = []
            self._failure: Optional[BaseException] = None
            self._working = Spent()
            self._thread = threading.Thread(target=self._run, name="all-reduce", daemon=True)
            self._thread.start()
        self._queue.put(work)

    def wait(self) -> List[List[Part]]:
        """Ends a step: the parts of all ranks, for each bucket.

        Raises what the first work that failed raised; later ones are not begun then. As a collective, it waits for
        ranks that are slow, until the collective is closed.
        """
        if self._thread is None:
            return []
        start = time.perf_counter()
        self._queue.put(None)
        self._thread.join()
        self._thread = None
        self.waited = time.perf_counter() - start
        self.spent = _scaled(self._working, self.waited)
        if self._failure is not None:
            raise self._failure
        return self._told

    def _run(self) -> None:
        for work in iter(self._queue.get, None):
            try:
                self._told.append(work())
            except BaseException as error:
                self._failure = error
                return
            self._working = Spent(*map(sum, zip(self._working, self._collective.spent)))


def _scaled(spent: Spent, seconds: float) -> Spent:
    """What `seconds` went for, as all that the thread did in the step went for."""
    total = sum(spent)
    return Spent(*(each * seconds / total for each in spent)) if total else Spent(wait=seconds)
