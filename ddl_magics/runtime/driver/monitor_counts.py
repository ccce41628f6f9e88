"""The counts of a monitor, in memory and on the cluster's storage: a batch that comes again is not counted again."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import Any, Callable, Iterable, Iterator

from ..monitoring.counting import Counter
from ..monitoring.reference import Reference
from ..monitoring.windows import Watch
from .monitor_folder import CountsFolder


class StoredCounts:
    """lock: is held by who reads `watch`. changed: since a reader has set it to False."""

    def __init__(self, reference: Reference, counter: Counter, file: CountsFolder) -> None:
        self._reference, self._counter, self._file = reference, counter, file
        self.watch = Watch(reference, counter)
        self.lock = threading.Lock()
        self.changed = self._stale = False

    def load(self) -> None:
        """Continue with the counts on the storage."""
        made_of = partial(Watch, self._reference, self._counter)
        self.watch, self._stale = self._file.read(made_of), False

    def store(self) -> None:
        """Write the counts. The lock is held."""
        self._file.write(self.watch.to_json())

    def add(self, batch: int, count: Callable[[], Iterable[Any]]) -> None:
        """Add the counts of a batch, which may come again after a restart; then `count` is not called."""
        with self.lock:
            self._load_if_stale()
            if batch <= self.watch.batch:
                self.changed = True
                return
        rows = count()
        with self.lock, self._stored():
            self.watch.add(batch, [tuple(row) for row in rows])

    def add_errors(self, batch: int, rows: Iterable[Any]) -> None:
        """Add the errors of newly labelled requests."""
        with self.lock, self._stored():
            self.watch.add_errors(batch, [tuple(row) for row in rows])

    def replace_errors(self, rows: Iterable[Any]) -> None:
        """Take the errors of all labelled requests in the place of those so far."""
        with self.lock:
            self.watch.set_errors([tuple(row) for row in rows])
            self.changed = True

    @contextlib.contextmanager
    def _stored(self) -> Iterator[None]:
        """What changes the counts within is stored at the end. Where that fails, the stored counts hold."""
        self._load_if_stale()
        self._stale = True
        yield
        self.store()
        self._stale, self.changed = False, True

    def _load_if_stale(self) -> None:
        if self._stale:
            self.load()
