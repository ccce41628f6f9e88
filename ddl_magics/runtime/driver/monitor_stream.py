"""A Spark stream that is started again, from its checkpoint, where it ends by itself."""

from __future__ import annotations

import time
from typing import Any, Callable

from ..spark import spark_error

#: Before a stream that has ended is started again, at first and at most.
AGAIN_SECONDS, MOST_AGAIN_SECONDS = 1.0, 60.0
#: A monitor fails after so many such starts without a batch between them, which takes hours.
MOST_FAILURES = 200
#: Of Spark, in what it says of anything that is begun after its end.
_ENDED = "stopped SparkContext"


class MonitorStream:
    """done: the stream has ended because it is to catch up once, and has."""

    def __init__(self, start: Callable[[], Any], once: bool, warn: Callable[[str], None]) -> None:
        """start(): returns Spark's query. once: the stream ends when it has caught up."""
        self._start, self._once, self._warn = start, once, warn
        self.query = start()
        self.done = False
        self.failures = 0
        self._again_at: float | None = None

    @property
    def paused(self) -> bool:
        return self._again_at is not None and time.monotonic() < self._again_at

    def look(self) -> None:
        """Start the stream again, after a pause, if it has ended by itself.

        Raises:
            RuntimeError: after too many failures, or at once where Spark itself has ended.
        """
        if self.query.isActive:
            if self.query.lastProgress:
                self.failures = 0
            return
        problem = self.query.exception()
        if problem is None and self._once:
            self.done = True
        elif self._again_at is not None:
            try:
                self.query, self._again_at = self._start(), None
            except Exception as error:  # of Spark, of several kinds: the storage of the log may still be away
                self._pause(spark_error.cause(error))
        else:
            self._pause("it was stopped" if problem is None else spark_error.cause(problem))

    def _pause(self, problem: str) -> None:
        pause = min(MOST_AGAIN_SECONDS, AGAIN_SECONDS * 2.0 ** min(self.failures, 10))
        self.failures += 1
        self._again_at = time.monotonic() + pause
        if self.failures > MOST_FAILURES or _ENDED in problem:
            raise RuntimeError(problem)
        if self.failures in (1, 10, 100):
            message = "the stream was interrupted: %s; it is started again in %g s, and counts nothing twice"
            self._warn(message % (problem, pause))

    def end(self, until: float) -> None:
        """Stop it after the batch that it is in, and at `until` of the monotonic clock at the latest."""
        while self.query.isActive and self.query.status["isTriggerActive"] and time.monotonic() < until:
            time.sleep(0.1)
        self.query.stop()
