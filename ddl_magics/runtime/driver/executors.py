"""Waiting for Spark's executors until they offer the run's slots; those that were given back are asked for again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable

from ..spark import allocation, slots

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Executors that the session's settings promise may take this long to start, and to be replaced when they died.
EXECUTORS_SECONDS = 120.0
LOOK_SECONDS = 1.0


def wait_for_slots(
    sc: SparkContext,
    workers: int,
    gpus: int | None,
    report: Callable[[int], None],
    stopped: Callable[[float], bool],
) -> str | None:
    """Wait until `workers` slots are there.

    gpus: GPUs of each slot. report(ready): called when the number of slots has changed and is too low.
    stopped(seconds): waits so long at most; whether the run is to stop, which ends the wait.

    Under dynamic allocation Spark asks for executors when it has tasks for them: nothing is waited for.

    Returns None, or in one line why the slots are not there.
    """
    if slots.dynamic_allocation(sc):
        return None
    try:
        allocation.acquire(sc)
    except allocation.CannotChange as error:
        return str(error)
    deadline = time.monotonic() + EXECUTORS_SECONDS
    reported = None
    while True:
        available = slots.registered_slots(sc, gpus)
        if available >= workers:
            return None
        if available != reported:
            reported = available
            report(available)
        if stopped(LOOK_SECONDS):
            return None
        if time.monotonic() > deadline:
            message = "%d of %d slots after %g s: ask for fewer with --workers %d, or raise spark.executor.instances"
            return message % (available, workers, EXECUTORS_SECONDS, max(1, available))
