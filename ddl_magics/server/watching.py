"""Runs as pages draw them: the same messages as the live view's widget gets, made from what the store holds.

A run's history is kept in memory for those who watch it, and grows with its file. A long run is read from its newest
snapshot on. Where it has none, it is not read at once: each request reads on for a bounded time, so that a page has
something to draw at once and gets the rest as updates.
"""

from __future__ import annotations

import base64
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddl_magics import snapshots
from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.messages import Packer
from ddl_magics.dashboard.snapshot import Snapshot
from ddl_magics.runtime import events as ev
from ddl_magics.server import eventfile
from ddl_magics.store import RunRecord

#: How long one request reads on: the first, after which there is something to draw, and those that catch up, which are
#: longer as each answer costs its bytes.
READ_SECONDS = 0.3
CATCH_UP_SECONDS = 2.0
BATCH_BYTES = 2**20
#: Runs and pages that are remembered; who was forgotten gets everything anew.
HISTORIES = 16
PAGES = 64


class Reading:
    """The history of one run, as far as its file has been read. Use it under `lock`."""

    def __init__(self, record: RunRecord) -> None:
        self.lock = threading.Lock()
        self.path: Path = record.folder / "events.jsonl"
        workers = record.spec.get("workers")
        workers = workers if isinstance(workers, int) else 1
        newest = snapshots.read(record.folder) or Snapshot(History(workers))
        self.history = newest.history
        self.facts = {
            "id": record.id,
            "name": record.title or record.name,
            "strategy": str(record.spec.get("strategy", "")),
            "workers": workers,
            "cluster": record.cluster,
            "waiting": False,
        }
        self.heard = newest.heard
        self.place = eventfile.place_after(self.path, newest.seq)
        self.damaged = 0
        self._more = True
        self._size = -1

    @property
    def behind(self) -> float:
        """The share of the file that has not been read."""
        return max(0.0, 1 - self.place / self._size) if self._more and self._size > 0 else 0.0

    def grown(self) -> bool:
        """Whether the file is another than when it was last read; its last line may be half written for ever."""
        return _size(self.path) != self._size

    def replaced(self) -> bool:
        """Whether the file is shorter than what has been read of it."""
        return _size(self.path) < self.place

    def read_on(self, seconds: float) -> None:
        """Take over what the file has, for about so many seconds."""
        deadline = time.monotonic() + seconds
        self._more, self._size = True, _size(self.path)
        while self._more:
            batch = eventfile.read(self.path, self.place, BATCH_BYTES)
            self.damaged += batch.skipped
            for event in batch.events:
                self._take(event)
            self.place, self._more = batch.place, batch.more
            if time.monotonic() > deadline:
                break

    def note_state(self, record: RunRecord) -> None:
        """A dead owner cannot say that the run is lost; the store does."""
        if record.state == ev.LOST and not self.history.over and not self._more:
            lost = {"state": ev.LOST, "message": "its kernel is gone", "time": record.ended or time.time()}
            self._take({"kind": "state", "rank": ev.JOB, **lost})

    def _take(self, event: eventfile.Event) -> None:
        try:
            self.history.feed([event])
            self.heard = event["time"]
        except (KeyError, TypeError, ValueError, AttributeError):
            self.damaged += 1


@dataclass
class _Page:
    reading: Reading
    packer: Packer
    #: What did not fit into the newest message waits for the next one.
    rest: bool = False


class Watching:
    """What the pages that show runs know of them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: OrderedDict[str, Reading] = OrderedDict()
        self._pages: OrderedDict[str, _Page] = OrderedDict()

    def look(self, record: RunRecord, page: str, number: int) -> dict[str, Any]:
        """Everything of a run for a new page, or what changed since message `number` for one that is known.

        Returns:
            `View` in `openapi.yaml`.
        """
        reading = self._reading(record)
        with reading.lock:
            known = self._page(page, reading)
            fresh = known is None or known.packer.number != number
            reading.read_on(READ_SECONDS if fresh else CATCH_UP_SECONDS)
            reading.note_state(record)
            if known is None or fresh:
                page, known = self._new_page(reading)
                packed = known.packer.full(time.time(), reading.heard)
            else:
                packed = known.packer.update(time.time(), reading.heard)
            known.rest = packed.rest
            return {
                "page": page,
                "message": packed.message,
                "buffers": [base64.b64encode(buffer).decode() for buffer in packed.buffers],
                "behind": round(reading.behind, 3),
                "damaged": reading.damaged,
                "more": packed.rest or reading.behind > 0,
            }

    def replay(self, record: RunRecord) -> dict[str, Any]:
        """The table of the workers over the run's time: `Replay` in `openapi.yaml`."""
        reading = self._reading(record)
        with reading.lock:
            reading.read_on(CATCH_UP_SECONDS)
            behind = round(reading.behind, 3)
            return {"moments": [] if behind else [f._asdict() for f in reading.history.frames.all()], "behind": behind}

    def news(self, record: RunRecord, page: str, number: int) -> bool:
        """Whether `look` would tell the page anything that it does not know."""
        reading = self._reading(record)
        known = self._page(page, reading)
        if known is None or known.packer.number != number or known.rest or reading.grown() or reading.behind:
            return True
        return record.over and not reading.history.over

    def _reading(self, record: RunRecord) -> Reading:
        with self._lock:
            reading = self._readings.get(record.id)
            if reading is None or reading.replaced():
                reading = self._readings[record.id] = Reading(record)
            self._readings.move_to_end(record.id)
            while len(self._readings) > HISTORIES:
                self._readings.popitem(last=False)
            return reading

    def _page(self, page: str, reading: Reading) -> _Page | None:
        with self._lock:
            known = self._pages.get(page)
            if known is None or known.reading is not reading:
                return None
            self._pages.move_to_end(page)
            return known

    def _new_page(self, reading: Reading) -> tuple[str, _Page]:
        page, made = secrets.token_urlsafe(9), _Page(reading, Packer(reading.history, reading.facts))
        with self._lock:
            self._pages[page] = made
            while len(self._pages) > PAGES:
                self._pages.popitem(last=False)
        return page, made


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
