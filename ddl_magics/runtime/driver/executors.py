"""Waiting for Spark's executors until they offer the run's slots; those that were given back are asked for again."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Callable

from ..spark import allocation, session_end, slots, yarn

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


def wait_for_slots(
    sc: SparkContext,
    least: int,
    most: int,
    gpus: int | None,
    report: Callable[[int, str | None], None],
    stopped: Callable[[float], bool],
) -> int | str:
    """Wait until `most` slots are there, or `least` and nothing more in `GROW_SECONDS`.

    gpus: GPUs of each slot. report(ready, why): called when the number of slots has changed and is too low, and once
    more with what the cluster manager says of that, if it says anything.
    stopped(seconds): waits so long at most; whether the run is to stop, which ends the wait.

    Under dynamic allocation Spark asks for executors when it has tasks for them: nothing is waited for.

    An executor that is lost for `LOST_SECONDS` is replaced.

    Returns how many there are, `most` at most, or in one line why there are not enough; at once if the session has
    ended.
    """
    ended = session_end.why_ended(sc)
    if ended is not None:
        return ended
    if slots.dynamic_allocation(sc):
        return most
    try:
        allocation.acquire(sc)
    except allocation.CannotChange as error:
        return str(error)
    began = changed_at = time.monotonic()
    reported, explained, lost = None, False, _Lost(sc)
    while True:
        available = slots.registered_slots(sc, gpus)
        if available >= most:
            return most
        if available != reported:
            reported, changed_at = available, time.monotonic()
            report(available, None)
        if available >= least and time.monotonic() - changed_at >= GROW_SECONDS:
            return available
        if stopped(LOOK_SECONDS):
            return available
        ended = session_end.why_ended(sc)
        if ended is not None:
            return ended
        lost.replace()
        seconds = time.monotonic() - began
        if seconds > EXPLAIN_SECONDS and not explained:
            explained = True
            why = yarn.view(sc)
            if why is not None:
                report(available, why)
        if seconds > EXECUTORS_SECONDS:
            return too_few(sc, available, least, EXECUTORS_SECONDS)


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
