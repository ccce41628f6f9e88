"""A Livy session that is dead and counts as idle: Livy can lose its driver without noticing (LIVY-727).

A session that executes nothing answers in milliseconds. One that Livy calls idle for a while, and that answers nothing
meanwhile, has no driver any more.
"""

from __future__ import annotations

import threading
import time

#: How long an idle session may take to answer. Its driver may have been frozen meanwhile.
ANSWER_SECONDS = 40.0
#: How often the state is asked for while a request waits for its answer.
LOOK_SECONDS = 4.0
#: What was seen longer ago than this does not count: nobody has asked meanwhile.
_FORGOTTEN_SECONDS = 40.0


class IdleSession:
    """For how long a session has been idle without an answer. Thread-safe: any answer, to any thread, is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._looked_at = 0.0

    @property
    def seconds(self) -> float:
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def answered(self) -> None:
        """The driver has answered."""
        with self._lock:
            self._since = None

    def is_dead(self, idle: bool, unanswered_since: float) -> bool:
        """Whether the session is dead, given what Livy says of it while a request has no answer.

        idle: whether it is idle now; unanswered_since: when that request was sent, by the monotonic clock.
        """
        now = time.monotonic()
        with self._lock:
            if not idle:
                self._since = None
            elif self._since is None or now > self._looked_at + _FORGOTTEN_SECONDS:
                self._since = unanswered_since
            self._looked_at = now
            return self._since is not None and now > self._since + ANSWER_SECONDS
