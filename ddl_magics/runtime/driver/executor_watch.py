"""What a run does about executors that are bad: it names them, and has them replaced where it may.

Before its workers start it may with --exclude bad; while it lasts, with --workers MIN..MAX, too.
"""

from __future__ import annotations

from typing import Callable, Collection, Iterable

from ..events import Steps
from ..run_spec import RunSpec
from ..spark import spark_error
from ..strategies import COLLECTIVE
from .bad_executors import BadExecutors, Executor
from .journal import Journal
from .slow_ranks import SlowRanks

_REMEDY = "--exclude bad keeps later runs of this session off it, though Spark may start the next one on the same host"


class ExecutorWatch:
    """Of one run. Its calls for ranks come one at a time.

    bad: those of the application. replace(ids): has Spark replace executors; returns which of them were there.
    """

    def __init__(
        self,
        spec: RunSpec,
        bad: BadExecutors,
        journal: Journal,
        replace: Callable[[list[str]], Collection[str]],
    ) -> None:
        self._run, self._bad, self._journal, self._replace_in_spark = spec.run, bad, journal, replace
        self._excludes, self._elastic = spec.exclude is not None, spec.min_workers is not None
        compares = spec.strategy in COLLECTIVE or spec.strategy == "ps"
        self._slow_ranks = SlowRanks() if compares else None
        self._executors: dict[int, Executor] = {}  # by rank: where it is, or was last
        self._slow: set[str] = set()  # the ids of those that were named for that
        self._left_for: set[str] = set()  # hosts on which a slow one was replaced while it trained
        self._said_kept: set[str] = set()  # the ids of those of which it was said that Spark keeps them

    def arrived(self, rank: int, executor: str | None, host: str) -> None:
        """The rank's process has begun. executor: None or empty where executors have no processes of their own."""
        if not executor:
            self._executors.pop(rank, None)
            return
        self._executors[rank] = Executor(executor, host)
        self._bad.arrived((self._run, rank), self._executors[rank])

    def left(self, rank: int) -> None:
        """The rank has ended in any way."""
        self._bad.left((self._run, rank))
        if self._slow_ranks is not None:
            self._slow_ranks.forget(rank)

    def all_left(self) -> None:
        for rank in self._executors:
            self.left(rank)
        self._executors.clear()

    def died(self, rank: int) -> None:
        """The rank has died by itself, and not because of the cell's code or of another rank."""
        executor = self._executors.get(rank)
        deaths = None if executor is None else self._bad.died(executor)
        if deaths is not None:
            self._name(executor, "workers have died there %d times, now rank %d" % (deaths, rank))

    def stepped(self, bucket: Steps) -> bool:
        """Whether the rank's executor is bad since this bucket of steps: it is slow."""
        times = None if self._slow_ranks is None else self._slow_ranks.step(bucket)
        executor = self._executors.get(bucket.rank)
        if times is None or executor is None or executor.id in self._slow:
            return False
        self._slow.add(executor.id)
        self._bad.was_slow(executor)
        reason = "for a minute, rank %d has taken %.1f times as long to compute as the median of the workers"
        self._name(executor, reason % (bucket.rank, times))
        return True

    def _name(self, executor: Executor | None, reason: str) -> None:
        remedy = "" if self._excludes else "; " + _REMEDY
        self._journal.notice("warning", "%s is bad: %s%s" % (executor, reason, remedy))

    # -- replacing them; these wait for Spark

    def replace_before(self, number: int) -> None:
        """Replace the bad executors before an attempt of this number, from 1, where the run may."""
        if self._excludes or (self._elastic and number > 1):
            self._replace(self._bad.take())
            self._say_kept(self._bad.left_over(), "other workers train there")

    def replacement_after(self, rank: int) -> Callable[[], None] | None:
        """What replaces the executor that a rank has died on, if it is bad, before another rank starts there."""
        executor = self._executors.pop(rank, None)
        if executor is None or not (self._excludes or self._elastic):
            return None
        return lambda: self._replace(self._bad.take(executor.id))

    def replace_slow(self, rank: int) -> None:
        """Replace the executor of a rank that is slow there, and with it the rank. Once a host: a second executor that
        is slow there tells that the host is.
        """
        executor = self._executors.get(rank)
        if executor is not None and self._elastic and executor.host not in self._left_for:
            executors = self._bad.take(executor.id, but=(self._run, rank))
            self._left_for.update(executor.host for executor in executors)
            self._replace(executors)

    def _replace(self, executors: list[Executor]) -> None:
        if not executors:
            return
        try:
            replaced = self._replace_in_spark([executor.id for executor in executors])
        except Exception as error:  # allocation.CannotChange, and Py4J's kinds
            self._bad.keep(executors)
            self._say_kept(executors, spark_error.cause(error))
            return
        for executor in executors:
            if executor.id in replaced:
                text = "%s is bad, and is replaced by another one, which Spark may start on the same host"
                self._journal.notice("info", text % executor)

    def _say_kept(self, executors: Iterable[Executor], reason: str) -> None:
        """Say once of each, where they were to be excluded."""
        for executor in executors:
            if self._excludes and executor.id not in self._said_kept:
                self._said_kept.add(executor.id)
                self._journal.notice("warning", "%s is bad, and stays: %s" % (executor, reason))
