"""What happens to every event of a run in its kernel: stored, added to the timeline, told to the views."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ddl_magics import owner
from ddl_magics.runtime import events as ev
from ddl_magics.store import RunFolder
from ddl_magics.timeline import Event, Timeline

#: Views are told at least so often, so that they can show that the kernel is there.
TICK_SECONDS = 1.0

_log = logging.getLogger(__name__)

Listener = Callable[[list[Event]], None]


class Recorder:
    """The only writer of a run's folder and of its timeline. Thread-safe.

    Listeners get new events, and an empty list now and then; one that raises is not told any more.
    """

    def __init__(self, run: str, folder: RunFolder, events: Sequence[Event] = ()) -> None:
        """`events` are those that the folder holds already."""
        self.timeline = Timeline(events)
        self._run = run
        self._folder = folder
        self._writing = threading.RLock()
        self._telling = threading.Lock()
        self._told: dict[Listener, int] = {}
        self._fit = next((_of_fit(event) for event in reversed(events) if event["kind"] == "fit"), {})
        self._unstorable = False
        self._beaten = self._ticked = time.monotonic()

    def say(self, kind: str, **fields: Any) -> None:
        """An event of the notebook's own."""
        with self._writing:
            event = {**ev.make(kind, ev.JOB, **fields), "run": self._run, "attempt": 0, "seq": self.timeline.last + 1}
            self.record([event])

    def end(self, state: str, message: str, failure: dict[str, Any] | None = None) -> None:
        """Enter a terminal state, unless the run is in one."""
        with self._writing:
            if not self.timeline.over:
                self.say("state", state=state, message=message, **({"failure": failure} if failure else {}))

    def record(self, events: Sequence[Event]) -> None:
        """Take over events that follow those so far without a gap."""
        if events:
            with self._writing:
                self.timeline.extend(events)
                self._store(events)
            self.tell()

    def listen(self, listener: Listener) -> None:
        """Tell the listener all events so far, and each new one once."""
        with self._telling:
            self._told.setdefault(listener, 0)
        self.tell()

    def tell(self, tick: bool = False, passing: Sequence[Event] = ()) -> None:
        """Bring listeners up to date; with `tick` also those that are.

        `passing`: events for those who look now; they are neither stored nor part of the timeline.
        """
        with self._telling:
            for listener, told in list(self._told.items()):
                fresh = self.timeline.events(told)
                self._told[listener] = told + len(fresh)
                if not fresh and not tick and not passing:
                    continue
                try:
                    listener([*fresh, *passing])
                except Exception:
                    # Said once: it would break at every event, and the run must go on.
                    del self._told[listener]
                    _log.exception("a view of run %s broke and is not updated any more", self._run)

    def pulse(self) -> None:
        """To be called often: says to the store and to the views, now and then, that the kernel lives."""
        now = time.monotonic()
        if now - self._beaten > owner.HEARTBEAT_SECONDS:
            self._beaten = now
            self._store([])
        if now - self._ticked > TICK_SECONDS:
            self._ticked = now
            self.tell(tick=True)

    def _store(self, events: Sequence[Event]) -> None:
        """Write events to the folder; without any, only that the owner lives."""
        changes = self._changes(events)
        if self._unstorable:
            return
        try:
            if events:
                self._folder.append(events)
            else:
                self._folder.beat()
            if changes:
                self._folder.update(changes)
        except OSError as error:
            # A full disk must not end a training whose events are all in memory. A file with a gap is worse than none.
            self._unstorable = True
            _log.error("run %s is not stored any more: %s", self._run, error)

    def _changes(self, events: Sequence[Event]) -> dict[str, Any]:
        """What events change in `run.json`."""
        changes: dict[str, Any] = {}
        for event in events:
            if event["kind"] == "state":
                changes.update(state=self.timeline.state, failure=self.timeline.failure)
                if self.timeline.over:
                    changes["ended"] = event["time"]
            elif event["kind"] == "worker" and event["rank"] == 0 and "versions" in event:
                changes["versions"] = event["versions"]
            elif event["kind"] == "fit":
                self._fit = _of_fit(event)
                changes["progress"] = {"epoch": 0, **self._fit, "metrics": {}}
            elif event["kind"] == "epoch":
                changes["progress"] = {"epoch": event["epoch"] + 1, **self._fit, "metrics": event["metrics"]}
        return changes


def _of_fit(event: Event) -> dict[str, Any]:
    """What `progress` says of the fit: how much there is to do, and when it began."""
    return {"epochs": event["epochs"], "steps": event["steps"], "begun": event["time"]}
