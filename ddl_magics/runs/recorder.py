"""Takes every event of a run in its kernel: stores it, adds it to the timeline, notifies the views."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddl_magics.runs.cell_files import CellFile, add_event, cell_files
from ddl_magics.runs.folder_writer import FolderWriter
from ddl_magics.runs.timeline import Timeline
from ddl_magics.runtime import events as ev
from ddl_magics.store import RunFolder

#: Longest time between two notifications of the views, from which they see that the kernel is alive.
TICK_SECONDS = 1.0

_log = logging.getLogger(__name__)

Listener = Callable[[list[ev.RawEvent]], None]


class Recorder:
    """The only writer of a run's timeline, which its folder follows. Thread-safe.

    Listeners get new events, and an empty list at each tick. A listener that raises is dropped.
    """

    def __init__(self, run: str, folder: RunFolder, events: Sequence[ev.RawEvent] = ()) -> None:
        """`events`: the events that the folder already holds."""
        self.timeline = Timeline(events)
        self._run = run
        self.writer = FolderWriter(folder, self.timeline)
        self._writing = threading.RLock()
        self._notifying = threading.Lock()
        #: Sequence number of the last event that each listener has received.
        self._delivered: dict[Listener, int] = {}
        self._fit = next((_fit_progress(fit) for fit in ev.select(ev.Fit, reversed(events))), {})
        self._files = cell_files(events)
        self._last_tick = time.monotonic()

    def emit(self, kind: str, **fields: Any) -> None:
        """Record an event of the notebook's own."""
        with self._writing:
            event = {
                **ev.make(kind, ev.JOB, **fields),
                "run": self._run,
                "attempt": 0,
                "seq": self.timeline.last_seq + 1,
            }
            self.record([event])

    def close(self, state: str, message: str, failure: Mapping[str, Any] | None = None) -> None:
        """Enter a terminal state, unless the run is in one."""
        with self._writing:
            if not self.timeline.over:
                self.emit("state", state=state, message=message, **({"failure": failure} if failure else {}))

    def record(self, events: Sequence[ev.RawEvent]) -> None:
        """Record events with sequence numbers above those of the timeline."""
        if events:
            events = [ev.encodable(dict(event)) for event in events]
            with self._writing:
                self.timeline.extend(events)
                self.writer.write(events, self._changes(events))
            self.notify()

    def listen(self, listener: Listener) -> None:
        """Send the listener all events so far, and each new one once."""
        with self._notifying:
            self._delivered.setdefault(listener, 0)
        self.notify()

    def notify(self, tick: bool = False, passing: Sequence[ev.RawEvent] = ()) -> None:
        """Send each listener the events that it has not received.

        Args:
            tick: call listeners also without new events.
            passing: events for the current listeners only, neither stored nor part of the timeline.
        """
        with self._notifying:
            for listener, delivered in list(self._delivered.items()):
                fresh = self.timeline.events(delivered)
                self._delivered[listener] = ev.parse(fresh[-1]).seq if fresh else delivered
                if not fresh and not tick and not passing:
                    continue
                try:
                    listener([*fresh, *passing])
                except Exception:
                    # Drop it: it would raise at every event, and the run must continue.
                    del self._delivered[listener]
                    _log.exception("a view of run %s raised an error and is no longer updated", self._run)

    def pulse(self) -> None:
        """Send the views a tick if one is due; to be called often."""
        now = time.monotonic()
        if now - self._last_tick > TICK_SECONDS:
            self._last_tick = now
            self.notify(tick=True)

    def _changes(self, events: Sequence[ev.RawEvent]) -> dict[str, Any]:
        """The fields of `run.json` that the events change."""
        changes: dict[str, Any] = {}
        for event in map(ev.parse, events):
            match event:
                case ev.State():
                    changes.update(state=self.timeline.state, failure=self.timeline.failure, message=event.message)
                    if self.timeline.over:
                        changes["ended"] = event.time
                case ev.Worker(rank=0) if event.versions is not None:
                    changes["versions"] = event.versions
                case ev.Fit():
                    self._fit = _fit_progress(event)
                    changes["progress"] = {"epoch": 0, **self._fit, "metrics": {}}
                case ev.Epoch():
                    changes["progress"] = {"epoch": event.epoch + 1, **self._fit, "metrics": event.metrics}
                case ev.File() | ev.Placed():
                    add_event(self._files, event)
                    changes["cell_files"] = [_stored(file) for _, file in sorted(self._files.items())]
        return changes


def _stored(file: CellFile) -> dict[str, Any]:
    return {"name": file.name, "size": file.size, "path": None if file.path is None else str(file.path)}


def _fit_progress(fit: ev.Fit) -> dict[str, Any]:
    """The part of `progress` that the event of a fit sets: its epochs and steps, and when it began."""
    return {"epochs": fit.epochs, "steps": fit.steps, "begun": fit.time}
