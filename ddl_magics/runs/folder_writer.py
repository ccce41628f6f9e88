"""Writes a run's folder: bounded in size, and retried while it cannot be written, as on a full disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddl_magics.runs.timeline import Timeline
from ddl_magics.runtime.events import RawEvent, parse
from ddl_magics.store import RunFolder, RunInUse, owner

#: An events file of at least this size, and twice its size after the previous rewrite, is replaced by the events of the
#: timeline, which merges old ones.
REWRITE_BYTES = 64 << 20

_log = logging.getLogger(__name__)


class FolderWriter:
    """The only writer of a run's folder in its kernel. Thread-safe.

    A thread writes heartbeats until the run is over. A full disk must not end the training. The timeline has all
    events: after a failure the thread writes everything again, until that succeeds. Once another process has become the
    owner, nothing is written.
    """

    def __init__(self, folder: RunFolder, timeline: Timeline) -> None:
        self._folder, self._timeline = folder, timeline
        self._lock = threading.Lock()
        self._changes: dict[str, Any] = {}  # fields of run.json that are not written yet
        self._stored_seq = 0  # sequence number of the last event in the folder
        self._rewrite_at = REWRITE_BYTES
        self._failing = False
        self._thread: threading.Thread | None = None
        self._heartbeats_over = threading.Event()  # later events are still written
        self._taken_over = False  # another process owns the folder

    def write(self, events: Sequence[RawEvent], changes: Mapping[str, Any]) -> None:
        """Append events, and change fields of `run.json`."""
        with self._lock:
            if self._taken_over:
                return
            self._changes.update(changes)
            # Events first: a record that says FINISHED must imply that all events are stored.
            self._try(*([] if self._failing else [lambda: self._append(events)]), self._write_record)
            if self._thread is None or (self._failing and self._heartbeats_over.is_set()):
                self._heartbeats_over.clear()
                self._thread = threading.Thread(target=self._keep, name="ddl_magics store", daemon=True)
                self._thread.start()

    def _keep(self) -> None:
        while not self._heartbeats_over.wait(owner.HEARTBEAT_SECONDS):
            self.tend()

    def tend(self) -> None:
        """Write a heartbeat, and rewrite the events if they are too large or a write has failed."""
        with self._lock:
            if not self._failing:
                too_large = self._folder.events_bytes() > self._rewrite_at
                self._try(self._folder.heartbeat, *([self._write_all] if too_large else []))
                return
            self._failing = False
            if self._try(self._folder.heartbeat, self._write_all, self._write_record, retrying=True):
                _log.warning("run %s is stored again, with all its events", self._folder.path.name)

    def _try(self, *writes: Callable[[], None], retrying: bool = False) -> bool:
        """Write, and return whether all could be written."""
        failures = []
        for write in writes:
            try:
                write()
            except RunInUse as error:
                _log.error("%s, which stores it now: this kernel only shows it", error)
                self._taken_over = True
                self._heartbeats_over.set()
                return False
            except OSError as error:
                failures.append(error)
        if failures and not self._failing and not retrying:
            name = self._folder.path.name
            _log.error("run %s cannot be stored, and continues; this is tried again: %s", name, failures[0])
        self._failing = self._failing or bool(failures)
        if self._timeline.over and not self._failing:
            self._heartbeats_over.set()
        return not failures

    def _append(self, events: Sequence[RawEvent]) -> None:
        fresh = [event for event in map(parse, events) if event.seq > self._stored_seq]
        if fresh:
            self._folder.append(event.raw for event in fresh)
            self._stored_seq = fresh[-1].seq

    def _write_all(self) -> None:
        lines = self._timeline.lines()
        self._folder.rewrite(text for _, text in lines)
        self._stored_seq = lines[-1][0] if lines else 0
        self._rewrite_at = max(REWRITE_BYTES, 2 * self._folder.events_bytes())

    def _write_record(self) -> None:
        if self._changes:
            self._folder.update(self._changes)
            self._changes = {}
