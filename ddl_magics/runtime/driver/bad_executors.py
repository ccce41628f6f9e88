"""The executors of a Spark application that are bad: workers die on them again and again, or are slow there.

Spark's own `spark.excludeOnFailure` does not know them: the task of a worker that has died ends well.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Callable, Hashable, Iterable

#: With so many deaths of workers an executor is bad.
SUSPICIOUS = 2
#: Workers that die on one executor within this time count as one: it may have ended itself.
TOGETHER_SECONDS = 1.0


@dataclass(frozen=True)
class Executor:
    """id: as Spark's web pages show it."""

    id: str
    host: str

    def __str__(self) -> str:
        return "executor %s on %s" % (self.id, self.host)


class BadExecutors:
    """Of one application, over its runs. Thread-safe. A worker is any value that tells it from the others of all runs.

    An executor is replaced once at most, and only while no other worker of ours is there.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: in seconds."""
        self._clock, self._lock = clock, threading.Lock()
        self._deaths: Counter[str] = Counter()
        self._died_at: dict[str, float] = {}
        self._bad: dict[str, Executor] = {}
        self._replaced: set[str] = set()
        self._workers: dict[Hashable, str] = {}  # worker -> the executor that it is on

    def arrived(self, worker: Hashable, executor: Executor) -> None:
        """A worker has begun on an executor."""
        with self._lock:
            self._workers[worker] = executor.id

    def left(self, worker: Hashable) -> None:
        """A worker has ended in any way, or was not there."""
        with self._lock:
            self._workers.pop(worker, None)

    def died(self, executor: Executor) -> int | None:
        """Count the death of a worker. How many there were, where this one makes the executor bad."""
        with self._lock:
            moment, before = self._clock(), self._died_at.get(executor.id)
            self._died_at[executor.id] = moment
            if executor.id in self._replaced or (before is not None and moment - before < TOGETHER_SECONDS):
                return None
            self._deaths[executor.id] += 1
            if self._deaths[executor.id] != SUSPICIOUS:
                return None
            self._bad[executor.id] = executor
            return SUSPICIOUS

    def was_slow(self, executor: Executor) -> None:
        """A worker was much slower there than the others."""
        with self._lock:
            self._bad[executor.id] = executor

    def take(self, executor_id: str | None = None, but: Hashable = None) -> list[Executor]:
        """Bad executors that the caller is to replace now: nobody else gets them. Not those on which workers are.

        executor_id: of the one that is meant. but: a worker that may be there.
        """
        with self._lock:
            busy = {executor for worker, executor in self._workers.items() if worker != but}
            wanted = set(self._bad) if executor_id is None else {executor_id}
            names = wanted - self._replaced - busy
            executors = [executor for name, executor in self._bad.items() if name in names]
            self._replaced.update(executor.id for executor in executors)
            return executors

    def left_over(self) -> list[Executor]:
        """Bad executors that nobody has replaced."""
        with self._lock:
            return [executor for name, executor in self._bad.items() if name not in self._replaced]

    def keep(self, executors: Iterable[Executor]) -> None:
        """Those that were taken could not be replaced."""
        with self._lock:
            self._replaced.difference_update(executor.id for executor in executors)


_of_applications: dict[str, BadExecutors] = {}
_finding = threading.Lock()


def of_application(application: str) -> BadExecutors:
    """Those of the Spark application with this id: its runs share them, and another one has other executors."""
    with _finding:
        return _of_applications.setdefault(application, BadExecutors())
