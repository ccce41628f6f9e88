"""Snapshots of a long run's charts, beside its events: a view opens the newest snapshot and reads only later events.

256 workers and 10^6 steps make 0.6 GB of events, while a snapshot is bounded. The kernel that owns the run writes the
snapshots. A view reads all events if there is no snapshot or it is damaged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.snapshot import Snapshot, dump, load
from ddl_magics.runtime import events as ev
from ddl_magics.store.files import write_atomically
from ddl_magics.store.run_folder import RunFolder

#: Events between two snapshots: what a server reads in a quarter of a second. Another one follows at the run's end. A
#: run with fewer events has no snapshot.
EVENTS = 8_000

_NAME = "history.json"


def read(run: Path) -> Snapshot | None:
    """The newest snapshot in a run's folder; None if there is none that this version can read."""
    try:
        return load((run / _NAME).read_bytes())
    except OSError:
        return None


class Snapshots:
    """Writes the snapshots of one run; `feed` listens to the run's recorder."""

    def __init__(self, folder: RunFolder, workers: int, last_seq: int = 0) -> None:
        """`last_seq`: sequence number of the newest event in the folder."""
        self._path = folder.path / _NAME
        stored = read(folder.path)
        # A take-over drops events that were half written, and their numbers go to other events.
        self._newest = stored if stored and stored.seq <= last_seq else Snapshot(History(workers))
        self._workers = workers
        self._pending: list[ev.Event] = []

    def feed(self, events: Sequence[ev.RawEvent]) -> None:
        """Take events in their order. Skips those that the snapshot has, and those that are not stored.

        The first call must have all events so far.
        """
        parsed = [ev.parse(event) for event in events]
        if any(event.first_seq <= self._newest.seq < event.seq for event in parsed):
            # Old events before and after the snapshot have been merged since.
            self._newest = Snapshot(History(self._workers))
        self._pending += (event for event in parsed if event.seq > self._newest.seq)
        over = any(isinstance(event, ev.State) and event.state in ev.TERMINAL for event in parsed)
        if len(self._pending) >= EVENTS or (over and self._newest.seq):
            self._write()

    def _write(self) -> None:
        newest, pending = self._newest, self._pending
        self._pending = []
        newest.history.feed(event.raw for event in pending)
        if pending:
            newest.seq, newest.last_seen = pending[-1].seq, pending[-1].time
        # A snapshot only saves time: without a new one, views read more events.
        with contextlib.suppress(OSError):
            write_atomically(self._path, [dump(newest)], lasting=False)
