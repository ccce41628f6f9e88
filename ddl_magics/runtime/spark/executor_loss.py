"""Why an executor was lost, as the cluster manager has told Spark: killed for its memory, its host gone, preempted."""

from __future__ import annotations

import time

from . import session_end, slots
from .pyspark_types import SparkContext

#: How long a process of an executor that dies may be ahead of Spark's connection to it.
NOTICE_SECONDS = 2.0
#: From then until the cluster manager has told why. That of a host that is gone is told after minutes.
REASON_SECONDS = 10.0
LOOK_SECONDS = 0.2
MAX_CHARACTERS = 300

_MEMORY = "spark.executor.memoryOverhead"
#: Of a process that got SIGKILL: from the system, or a cgroup, that has run out of memory.
_KILLED = ("code 137", "status: 137")


def wait_for_reason(sc: SparkContext, executor: str) -> str | None:
    """Why this executor was lost, in one line without semicolons; None where it was not, and where nobody tells.

    Waits for the reason for `REASON_SECONDS` at most, and not once the session has ended.
    """
    if not sc.master.startswith(slots.OF_CONTAINERS):  # others say only that the process has ended
        return None
    began = time.monotonic()
    while True:
        text = _reason(sc, executor)
        if text is not None:
            return in_one_line(text)
        seconds = NOTICE_SECONDS if executor in slots.executors(sc) else REASON_SECONDS
        if time.monotonic() > began + seconds or session_end.has_ended(sc):
            return None
        time.sleep(LOOK_SECONDS)


def in_one_line(text: str) -> str:
    """A reason of Spark's as part of a message. One that may be want of memory names the setting."""
    line = " ".join(text.replace(";", ",").split())[:MAX_CHARACTERS].rstrip(". ")
    if _MEMORY not in line and any(killed in line for killed in _KILLED):
        line += ", which is often want of memory: raise %s" % _MEMORY
    return line


def _reason(sc: SparkContext, executor: str) -> str | None:
    listed = sc._jsc.sc().statusStore().executorList(False)
    for index in range(listed.size()):
        summary = listed.apply(index)
        if summary.id() == executor and not summary.isActive() and summary.removeReason().isDefined():
            return str(summary.removeReason().get())
    return None
