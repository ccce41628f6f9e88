"""Executors that an application gives back while nothing runs on them, and asks for again when something shall.

Spark has calls for both, which lower and raise the number of executors that it asks its cluster manager for. A job that
is submitted in between waits, without a word, until executors are there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Iterable

from ..wording import counted
from . import slots
from .pyspark_types import SparkContext
from .settings import conf_of

#: Spark's default of spark.dynamicAllocation.executorIdleTimeout.
IDLE_TIMEOUT = "60s"

#: For so long executors that register after a release are given back, too: they were being started.
LATE_SECONDS, LATE_POLL_SECONDS = 120.0, 1.0

_released: dict[str, int] = {}  # id of an application -> the executors that it has given back
_released_ids: dict[str, set[str]] = {}  # the same -> the ids of all that it ever gave back
_changing = threading.Lock()


class CannotChange(Exception):
    """The executors stay as they are: one line."""


def released(sc: SparkContext) -> int:
    """How many executors have been given back and not been asked for again."""
    return _released.get(sc.applicationId, 0)


def release(sc: SparkContext) -> int:
    """Give all executors back; returns how many. What they have cached is lost with them.

    One that is being started, for example after the death of another one, is given back when it has registered.

    Raises:
        CannotChange: Spark does that by itself, has no executors, or runs a job.
    """
    _check(sc)
    jobs = _jobs(sc)
    if jobs:
        raise CannotChange("Spark runs %s: wait for the end" % counted(jobs, "job"))
    with _changing:
        count = _give_back(sc)
    if count:
        threading.Thread(target=_give_late_ones_back, args=(sc,), daemon=True).start()
    return count


def _give_back(sc: SparkContext) -> int:
    """Give those back that have not been; how many. Spark lists an executor until it has ended."""
    released_ids = _released_ids.setdefault(sc.applicationId, set())
    ids = [executor_id for executor_id in slots.executors(sc) if executor_id not in released_ids]
    if ids:
        _kill(sc, ids)
        released_ids.update(ids)
        # Those of the settings, where they say it: one that has just died, and the one in its place, are the same.
        _released[sc.applicationId] = slots.executors_promised(sc) or released(sc) + len(ids)
    return len(ids)


def _give_late_ones_back(sc: SparkContext) -> None:
    deadline = time.monotonic() + LATE_SECONDS
    with contextlib.suppress(Exception):  # the session has ended: Py4J's kinds, which cannot be named without pyspark
        while time.monotonic() < deadline:
            time.sleep(LATE_POLL_SECONDS)
            with _changing:
                if not released(sc):
                    return
                if not _jobs(sc):
                    _give_back(sc)


def _jobs(sc: SparkContext) -> int:
    return len(list(sc.statusTracker().getActiveJobsIds()))


def replace(sc: SparkContext, executor: str) -> bool:
    """End one executor, with what runs on it, and ask for a new one, which comes later and may be on the same host.

    Returns whether it was there.

    Raises:
        CannotChange: Spark chooses its executors by itself, has none, or gives no other one.
    """
    _check(sc)
    return bool(replace_several(sc, [executor]))


def replace_several(sc: SparkContext, executors: Iterable[str]) -> list[str]:
    """As `replace`, of several at once. Returns the ids of those that were there.

    Raises:
        CannotChange: one is there, and Spark chooses its executors by itself, or gives no other ones.
    """
    registered = set(slots.executors(sc))
    there = [executor for executor in executors if executor in registered]
    if there:
        _check(sc)
        _replace(sc, there)
    return there


def replace_lost(sc: SparkContext, lost: list[str]) -> None:
    """Have others started in the place of executors that are lost (`slots.lost`): without that, Spark waits until it
    has learned why.

    Raises:
        CannotChange: the cluster manager gives none.
    """
    _replace(sc, lost)


def replace_host_of(sc: SparkContext, executor: str) -> None:
    """Have others started in the place of all executors on this one's host, which does not answer, where there may be
    other hosts. Until Spark misses them, after two minutes, it would send them tasks.

    Raises:
        CannotChange: the cluster manager gives none.
    """
    if sc.master.startswith(slots.OF_CONTAINERS):
        _replace(sc, slots.on_host_of(sc, executor))


def _replace(sc: SparkContext, ids: list[str]) -> None:
    executors = slots.executors_wanted(sc)
    _kill(sc, ids)
    # Not `requestExecutors(1)`: a standalone master counts from 0 there, and one executor is left.
    no_localities = sc._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(sc._jvm.java.util.HashMap())
    if not sc._jsc.sc().requestTotalExecutors(executors, 0, no_localities):
        raise CannotChange("the cluster manager of %s gives no other executor" % sc.master)


def _check(sc: SparkContext) -> None:
    """CannotChange where executors cannot be ended one by one."""
    if slots.dynamic_allocation(sc):
        idle = conf_of(sc).get("spark.dynamicAllocation.executorIdleTimeout", IDLE_TIMEOUT)
        raise CannotChange(
            "under dynamic allocation Spark itself removes executors that have had no work for %s "
            "(spark.dynamicAllocation.executorIdleTimeout)" % idle
        )
    if not slots.has_executors(sc):
        raise CannotChange("Spark at %s has no executors of their own: end the session instead" % sc.master)


def _kill(sc: SparkContext, ids: Iterable[str]) -> None:
    java_ids = sc._jvm.java.util.ArrayList()
    for executor_id in ids:
        java_ids.add(executor_id)
    if not sc._jsc.sc().killExecutors(sc._jvm.org.apache.spark.api.python.PythonUtils.toSeq(java_ids)):
        raise CannotChange("the cluster manager of %s takes no executors back" % sc.master)


def acquire(sc: SparkContext) -> int:
    """Ask for as many executors as were given back; returns how many, 0 where none were. They come later.

    Raises:
        CannotChange: the cluster manager gives none.
    """
    with _changing:
        count = released(sc)
        if count and not sc._jsc.sc().requestExecutors(count):
            raise CannotChange("the cluster manager of %s takes no request for executors" % sc.master)
        _released.pop(sc.applicationId, None)
        return count
