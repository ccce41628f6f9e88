"""What a run says of itself: its state, its notices and its events, all in one log."""

from __future__ import annotations

import threading
from typing import Any, Container

from .. import events
from .event_log import EventLog


class Journal:
    """The state of a run, and its log. Thread-safe.

    attempt: the number of the attempt in progress, or of the next; events of the run itself are of this attempt.
    """

    def __init__(self, run: str) -> None:
        self.log = EventLog(run)
        self.state = events.PREFLIGHT
        self.attempt = 1
        self._entering = threading.RLock()

    def enter(self, state: str, message: str, **fields: Any) -> None:
        """The run enters a state."""
        with self._entering:
            self.report(events.make("state", events.JOB, state=state, message=message, **fields))
            self.state = state

    def enter_from(self, states: Container[str], state: str, message: str, **fields: Any) -> None:
        """The run enters a state if it is in one of `states`."""
        with self._entering:
            if self.state in states:
                self.enter(state, message, **fields)

    def notice(self, level: str, message: str) -> None:
        self.report(events.make("notice", events.JOB, level=level, message=message))

    def report(self, event: events.RawEvent) -> None:
        self.log.append(event, self.attempt)
