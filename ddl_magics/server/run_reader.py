"""Reads the history of one run from the stored events."""

from __future__ import annotations

import threading
import time
from typing import Any, BinaryIO

from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.next_step import Reach
from ddl_magics.dashboard.snapshot import Snapshot
from ddl_magics.runtime import events as ev
from ddl_magics.server import eventfile
from ddl_magics.server.details import failure
from ddl_magics.store import RunFolder, RunRecord, snapshots

#: Time that one request may read: short for the first request, so that a view soon has something to draw; longer for
#: the next ones, because every answer has a fixed cost.
READ_SECONDS = 0.3
CATCH_UP_SECONDS = 2.0
BATCH_BYTES = 2**20


class RunReader:
    """The history of one run, which `read_more` continues. Not thread-safe: hold `lock`.

    It starts from the newest snapshot of the run, if there is one. If the owner of a long run replaces the file by a
    shorter one, it continues after the last event that it has read. If events before and after that one were merged, it
    begins again, with a new `history`.

    Attributes:
        info, reach: as `dashboard/next_step.py` takes them.
        last_seen: time of the newest event, in seconds since the epoch.
        damaged: number of lines and events that could not be read.
        fed: number of events that the histories have got.
    """

    def __init__(self, record: RunRecord) -> None:
        self.lock = threading.Lock()
        self.fed = 0
        workers = record.spec.get("workers")
        workers = workers if isinstance(workers, int) else 1
        self.info: dict[str, Any] = {
            "id": record.id,
            "name": record.title or record.name,
            "strategy": str(record.spec.get("strategy", "")),
            "workers": workers,
            "min_workers": record.spec.get("min_workers"),
            "cluster": record.cluster,
            "waiting": False,
        }
        self.reach = Reach(record.attachable, record.folder)
        self._folder, self._workers = RunFolder(record.folder), workers
        self._size = -1
        self._begin(from_snapshot=True)

    def _begin(self, from_snapshot: bool) -> None:
        snapshot = (snapshots.read(self._folder.path) if from_snapshot else None) or Snapshot(History(self._workers))
        self.history, self.last_seen = snapshot.history, snapshot.last_seen
        self.damaged = 0
        self._last_seq = snapshot.seq  # number of the last event that was read
        self._offset, self._found_after = 0, 0
        self._before = b""  # bytes before the offset: they differ in a file that replaced this one
        self._has_more, self._has_caught_up = True, False

    @property
    def behind(self) -> float:
        """The share of the file that has not been read, 0 to 1."""
        return max(0.0, 1 - self._offset / self._size) if self._has_more and self._size > 0 else 0.0

    def has_grown(self) -> bool:
        """Whether the file has changed since the last read.

        Its size tells, not the offset: an incomplete last line may never be completed.
        """
        return self._folder.events_bytes() != self._size

    def read_more(self, seconds: float) -> None:
        """Read on to the end of the file, for about `seconds` at most."""
        deadline = time.monotonic() + seconds
        self._has_more, self._size = True, self._folder.events_bytes()
        try:
            with open(self._folder.path / "events.jsonl", "rb") as file:
                self._find(file)
                while self._has_more and self._read(file) and time.monotonic() < deadline:
                    pass
        except OSError:
            self._has_more = False
        self._has_caught_up = self._has_caught_up or not self._has_more

    def _find(self, file: BinaryIO) -> None:
        """If the file was replaced since the last read, set the offset to the first event that has not been read.

        The inode does not show that: a file system reuses it.
        """
        if self._offset == 0 or eventfile.bytes_before(file, self._offset) != self._before:
            self._found_after = self._last_seq
            self._offset = eventfile.offset_after(file, self._last_seq)

    def _read(self, file: BinaryIO) -> bool:
        """Read a batch. False if the history has begun again."""
        batch = eventfile.read(file, self._offset, BATCH_BYTES)
        self.damaged += batch.skipped
        for event in map(ev.parse, batch.events):
            if event.first and event.first <= self._found_after:
                self._begin(from_snapshot=self._has_caught_up)
                return False
            self._feed(event)
            self._last_seq = max(self._last_seq, event.seq)
        self._offset, self._has_more = batch.offset, batch.has_more
        self._before = eventfile.bytes_before(file, self._offset)
        return True

    def mark_over(self, record: RunRecord) -> None:
        """End the history if the record says that the run has ended, but no event does.

        A dead kernel writes no such event; of any other run, the end of the file is missing.
        """
        if record.over and not self.history.over and not self._has_more:
            message = _lost(self.reach) if record.state == ev.LOST else "the end of its events is missing"
            state_event = ev.make("state", ev.JOB, state=record.state, message=message, failure=failure(record))
            self._feed(ev.parse({**state_event, "time": record.ended or time.time()}))
            self.damaged += record.state != ev.LOST

    def _feed(self, event: ev.Event) -> None:
        self.history.feed([event.raw])
        self.fed += 1
        self.last_seen = event.time


def _lost(reach: Reach) -> str:
    """Why nobody follows a run any more."""
    return "Its kernel has ended" + (": nobody follows it now." if reach.attachable else ", and the run with it.")
