"""A run's events so far, its state and its failure, shared by the thread that follows the run and its readers.

The memory is bounded, however long the run: see `bounded_log.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.bounded_log import BoundedLog, Line


class Timeline:
    """Grows by `extend`, until `settle`: no more events come, and the artifacts are here. Thread-safe."""

    def __init__(self, events: Iterable[ev.RawEvent] = ()) -> None:
        self._changed = threading.Condition()
        self._log = BoundedLog()
        self._settled = False
        self.state = ev.QUEUED
        self.failure: Mapping[str, Any] | None = None
        self.extend(events)

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest event."""
        return self._log.last

    @property
    def over(self) -> bool:
        return self.state in ev.TERMINAL

    def events(self, after: int = 0) -> list[ev.RawEvent]:
        """The events with a sequence number above `after`; old ones may have been merged."""
        with self._changed:
            return list(self._log.events(after))

    @property
    def has_merged_values(self) -> bool:
        """Whether old calls of `ddl.log` are merged."""
        return self._log.has_merged("values")

    def lines(self) -> list[Line]:
        """All events, each as its sequence number and JSON."""
        with self._changed:
            return list(self._log.lines())

    def extend(self, events: Iterable[ev.RawEvent]) -> None:
        with self._changed:
            for raw in events:
                self._log.append(self._numbered(raw))
                if raw["kind"] == ev.State.kind:
                    self._enter(ev.parse_as(ev.State, raw))
            self._changed.notify_all()

    def _enter(self, event: ev.State) -> None:
        if event.state in ev.STATES:
            self.state = event.state
            self.failure = event.failure or self.failure

    def _numbered(self, raw: ev.RawEvent) -> ev.RawEvent:
        """A stored event may be damaged; its number orders the log."""
        seq = raw.get("seq")
        return {**raw, "seq": seq if isinstance(seq, int) and 0 < seq < 2**53 else self._log.last + 1}

    def settle(self) -> None:
        with self._changed:
            self._settled = True
            self._changed.notify_all()

    def wait_until_settled(self, timeout: float | None = None) -> bool:
        """Block until the timeline is settled, for at most `timeout` seconds; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._settled, timeout)
