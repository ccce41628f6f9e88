"""Waiting for Spark's executors until they offer the run's slots; those that were given back are asked for again."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from typing import TYPE_CHECKING, Callable, Iterator

from ..spark import allocation, jvm_gateway, session_end, slots, yarn

if TYPE_CHECKING:
    from pyspark import SparkContext

#: With MIN..MAX workers: once MIN have slots, those beyond may take so long.
GROW_SECONDS = 10.0
#: Executors that the session's settings promise may take this long to start, and to be replaced when they died.
EXECUTORS_SECONDS = 120.0
LOOK_SECONDS = 1.0
#: After so long the state says why they are not there.
EXPLAIN_SECONDS = 20.0
#: For so long Spark may ask why an executor was lost, before others are asked for.
LOST_SECONDS = 10.0
#: So long Spark may take to end tasks that have summoned executors.
CANCEL_SECONDS = 20.0


def wait_for_slots(
    sc: SparkContext,
    min_slots: int,
    max_slots: int,
    gpus: int | None,
    report: Callable[[int, str | None], None],
    stopped: Callable[[float], bool],
    summons: str | None = None,
) -> int | str:
    """Wait until `max_slots` are there, or `min_slots` and nothing more in `GROW_SECONDS`.

    gpus: GPUs of each slot. report(ready, why): called when the number of slots has changed and is too low, and once
    more with what the cluster manager says of that, if it says anything.
    stopped(seconds): waits so long at most; whether the run is to stop, which ends the wait.

    Under dynamic allocation Spark asks for executors when it has tasks for them: nothing is waited for, unless there is
    a job group, `summons`, for tasks that do nothing else.

    An executor that is lost for `LOST_SECONDS` is replaced.

    Returns how many there are, `max_slots` at most, or in one line why there are not enough; at once if the session has
    ended.
    """
    ended = session_end.why_ended(sc)
    if ended is not None:
        return ended
    slots_of_sc = functools.partial(slots.registered_slots, sc, gpus)
    if slots.dynamic_allocation(sc):
        if summons is None:
            return max_slots
        with _summoned(sc, max_slots, summons):
            return _wait(sc, slots_of_sc, min_slots, max_slots, report, stopped, None)
    try:
        allocation.acquire(sc)
    except allocation.CannotChange as error:
        return str(error)
    return _wait(sc, slots_of_sc, min_slots, max_slots, report, stopped, _Lost(sc))


def _wait(
    sc: SparkContext,
    count: Callable[[], int],
    min_slots: int,
    max_slots: int,
    report: Callable[[int, str | None], None],
    stopped: Callable[[float], bool],
    lost: _Lost | None,
) -> int | str:
    """As `wait_for_slots`. count: of the slots that there are; lost: executors to replace."""
    began = changed_at = time.monotonic()
    reported, explained = None, False
    while True:
        available = count()
        if available >= max_slots:
            return max_slots
        if available != reported:
            reported, changed_at = available, time.monotonic()
            report(available, None)
        if available >= min_slots and time.monotonic() - changed_at >= GROW_SECONDS:
            return available
        if stopped(LOOK_SECONDS):
            return available
        ended = session_end.why_ended(sc)
        if ended is not None:
            return ended
        if lost is not None:
            lost.replace()
        seconds = time.monotonic() - began
        if seconds > EXPLAIN_SECONDS and not explained:
            explained = True
            why = yarn.view(sc)
            if why is not None:
                report(available, why)
        if seconds > EXECUTORS_SECONDS:
            if available >= min_slots:
                return available
            return too_few(sc, available, min_slots, EXECUTORS_SECONDS)


@contextlib.contextmanager
def _summoned(sc: SparkContext, count: int, group: str) -> Iterator[None]:
    """While it lasts, Spark has so many tasks, which do nothing: it asks for executors for them."""

    def wait(_: int) -> None:  # travels by value: executors have no such module
        import time

        time.sleep(EXECUTORS_SECONDS)

    def run() -> None:
        with contextlib.suppress(Exception):  # it is cancelled, or the session has ended: Py4J's kinds
            jvm_gateway.collect(sc.parallelize(range(count), count).map(wait), group, "waiting for executors")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            sc.cancelJobGroup(group)
        thread.join(CANCEL_SECONDS)


def too_few(sc: SparkContext, available: int, workers: int, seconds: float) -> str:
    """In one line that so many slots are not enough, why, and what to do. seconds: how long was waited."""
    advice = yarn.view(sc)
    if available:
        advice = advice or "ask for fewer with --workers %d, or raise spark.executor.instances" % available
        return "%d of %d slots after %g s: %s" % (available, workers, seconds, advice)
    advice = advice or "see the web page of %s, or ask for less in spark.executor.memory and cores" % sc.master
    return "Spark has got no executor after %g s: %s" % (seconds, advice)


class _Lost:
    """The executors that are lost while slots are waited for."""

    def __init__(self, sc: SparkContext) -> None:
        self._sc = sc
        self._since: dict[str, float] = {}
        self._replaced: set[str] = set()

    def replace(self) -> None:
        """Have those replaced that have been lost for `LOST_SECONDS`."""
        now = time.monotonic()
        self._since = {executor: self._since.get(executor, now) for executor in slots.lost(self._sc)}
        overdue = [executor for executor, since in self._since.items() if now - since >= LOST_SECONDS]
        new = [executor for executor in overdue if executor not in self._replaced]
        if new:
            self._replaced.update(new)
            with contextlib.suppress(allocation.CannotChange):  # the end of the wait says that they are not there
                allocation.replace_lost(self._sc, new)
