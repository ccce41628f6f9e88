"""Why a Spark session has ended by itself: YARN, or another cluster manager, has ended its application.

Spark then stops its context, a second or two after the executors, and the driver's process lives on.
"""

from __future__ import annotations

import contextlib

from . import yarn
from .pyspark_types import SparkContext

ADVICE = "begin another Spark session, after spark.stop() or in a restarted kernel"


def has_ended(sc: SparkContext) -> bool:
    """Whether Spark's context is stopped. False where that cannot be asked."""
    with contextlib.suppress(Exception):  # Py4J's kinds, and the context of a stopped session
        return bool(sc._jsc.sc().isStopped())
    return False


def why_ended(sc: SparkContext) -> str | None:
    """In one line that ends in what to do; None while the session lives."""
    if not has_ended(sc):
        return None
    words = yarn.why_ended(sc) if sc.master == "yarn" else None
    return "the Spark session has ended (%s): %s" % (words or "its context is stopped", ADVICE)
