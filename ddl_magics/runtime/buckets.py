"""All-reduces beside the computation: while the backward pass makes further gradients, those that are there travel.

The buckets of a step are numbered in the order in which the backward pass fills them. A thread of its own sums one
after the other in this order, the same on all ranks, whatever the order in which they were submitted.
"""

import queue
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence

from .collective import Spent
from .parts import Part

#: A bucket has at least so many bytes, as each costs every rank some round trips, and a step has at most so many: what
#: overlap can win is one bucket less of waiting at its end.
LEAST_BUCKET_BYTES, MOST_BUCKETS = 512 << 10, 8

#: How long `close` waits for the thread, which the closed collective has told to end.
JOIN_SECONDS = 5.0

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
    """The all-reduces of one rank's steps. While buckets are under way nobody else may use their collective.

    `waited` are the seconds for which the last `wait` did so, and `spent` where they went.
    """

    def __init__(self, collective) -> None:
        self._collective = collective
        self._submitted: "queue.SimpleQueue[Optional[Work]]" = queue.SimpleQueue()
        self._done: "queue.SimpleQueue[object]" = queue.SimpleQueue()
        self._early: Dict[int, Work] = {}
        self._next = 0
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._spent = Spent()
        self.waited, self.spent = 0.0, Spent()

    def submit(self, number: int, work: Work) -> None:
        """Has `work` done once that of all smaller numbers of this step is done. From any thread, without waiting."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="all-reduce", daemon=True)
                self._thread.start()
            self._early[number] = work
            while self._next in self._early:
                self._submitted.put(self._early.pop(self._next))
                self._next += 1

    def wait(self) -> List[List[Part]]:
        """Ends a step: the parts of all ranks, for each bucket by number.

        Raises what the first work that failed raised; later ones are not begun then. As a collective, it waits for
        ranks that are slow, until the collective is closed. RuntimeError where a bucket is missing.
        """
        start = time.perf_counter()
        with self._lock:
            count, missing = self._next, sorted(self._early)
            self._early.clear()
            self._next = 0
        outcomes = [self._done.get() for _ in range(count)]
        self.waited = time.perf_counter() - start
        spent, self._spent = self._spent, Spent()
        self.spent = _scaled(spent, self.waited)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if missing:
            raise RuntimeError("bucket %d was submitted, and number %d was not" % (missing[0], count))
        return outcomes

    def close(self) -> None:
        """Ends the thread, once its collective has ended."""
        if self._thread is not None:
            self._submitted.put(None)
            self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        failure: Optional[BaseException] = None
        for work in iter(self._submitted.get, None):
            if failure is None:
                try:
                    outcome: object = work()
                    self._spent = Spent(*map(sum, zip(self._spent, self._collective.spent)))
                except BaseException as error:
                    outcome = failure = error
            self._done.put(failure or outcome)


def _scaled(spent: Spent, seconds: float) -> Spent:
    """What `seconds` went for, as all that the thread did in the step went for."""
    total = sum(spent)
    return Spent(*(each * seconds / total for each in spent)) if total else Spent(wait=seconds)
