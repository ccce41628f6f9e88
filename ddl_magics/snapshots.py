"""What is drawn of a long run, kept beside its events: who opens it reads the newest snapshot and what came after.

The events of 256 workers and 10^6 steps are 0.6 GB; what is drawn of them is bounded. The kernel that owns the run
writes the snapshots; without one, or with one that is damaged, all is read from the events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.snapshot import Snapshot, dump, load
from ddl_magics.runtime import events as ev
from ddl_magics.store import RunFolder, write_atomically

#: A snapshot follows the one before after so many events, and at the end: what a server reads in a quarter of a second.
#: A run that has fewer has none.
EVENTS = 8_000

_NAME = "history.json"


def read(run: Path) -> Snapshot | None:
    """The newest snapshot in the folder of a run."""
    try:
        return load((run / _NAME).read_bytes())
    except OSError:
        return None


class Snapshots:
    """Writes the snapshots of one run. Listens to its recorder, from the first event on or again."""

    def __init__(self, folder: RunFolder, workers: int, last: int = 0) -> None:
        """`last`: the number of the newest event that the folder holds."""
        self._path = folder.path / _NAME
        stored = read(folder.path)
        # Events that were half written may have been given up, and their numbers to others.
        self._newest = stored if stored and stored.seq <= last else Snapshot(History(workers))
        self._waiting: list[Mapping[str, Any]] = []

    def feed(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Take over events in their order; those that are not stored, or known, are passed over."""
        self._waiting += (event for event in events if event.get("seq", 0) > self._newest.seq)
        over = any(event["kind"] == "state" and event["state"] in ev.TERMINAL for event in events)
        if len(self._waiting) >= EVENTS or (over and self._newest.seq):
            self._write()

    def _write(self) -> None:
        newest, waiting = self._newest, self._waiting
        self._waiting = []
        newest.history.feed(waiting)
        if waiting:
            newest.seq, newest.heard = waiting[-1]["seq"], waiting[-1]["time"]
        # Where it cannot be written, the one before stays, or none: the events are what counts.
        with contextlib.suppress(OSError):
            write_atomically(self._path, dump(newest))
