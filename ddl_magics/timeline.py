"""The events of a run so far, its state and its failure, shared between the thread that follows it and its readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ddl_magics.runtime import events as ev

Event = Mapping[str, Any]


class Timeline:
    """Grows by `extend`; `settle` says that nothing more comes and that artifacts are here. Thread-safe."""

    def __init__(self, events: Iterable[Event] = (), state: str = ev.QUEUED) -> None:
        self._changed = threading.Condition()
        self._events: list[Event] = []
        self._settled = False
        self.state = state
        self.failure: Mapping[str, Any] | None = None
        self.extend(events)

    @property
    def last(self) -> int:
        """Sequence number of the newest event."""
        return len(self._events)

    @property
    def over(self) -> bool:
        return self.state in ev.TERMINAL

    @property
    def settled(self) -> bool:
        return self._settled

    def events(self, after: int = 0) -> list[Event]:
        with self._changed:
            return self._events[after:]

    def extend(self, events: Iterable[Event]) -> None:
        with self._changed:
            for event in events:
                self._events.append(event)
                if event.get("kind") == "state" and event.get("state") in ev.STATES:
                    self.state = event["state"]
                    self.failure = event.get("failure") or self.failure
            self._changed.notify_all()

    def settle(self) -> None:
        with self._changed:
            self._settled = True
            self._changed.notify_all()

    def wait(self, done: Callable[[Timeline], bool], timeout: float | None = None) -> bool:
        """Block until `done(self)` or for `timeout` seconds; says whether it is done."""
        with self._changed:
            return self._changed.wait_for(lambda: done(self), timeout)
