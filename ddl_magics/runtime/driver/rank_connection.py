"""What comes over one connection of a rank, as long as it is the connection of the rank's current attempt.

A rank that was cut off or counted as dead may have data on their way, or come back, while its successor trains. Of that
nothing may be recorded: no event, no checkpoint, no artifact, no end.
"""

from __future__ import annotations

import threading
from typing import Callable

from ..events import RawEvent
from ..rank_end import RankEnd
from ..transport import wire
from ..transport.incoming import IncomingFile
from .rank_messages import RankListener


class RankConnection:
    """A `ConnectionListener` that passes on what comes. ConnectionLost once the connection is no longer the rank's.

    lock: guards what `is_current` reads. It is held while a message is taken, so that none is taken too late.
    """

    def __init__(
        self,
        listener: RankListener,
        lock: threading.Condition,
        is_current: Callable[[], bool],
        on_activity: Callable[[], None],
    ) -> None:
        """on_activity: called for each frame, under the lock."""
        self._listener, self._lock = listener, lock
        self._is_current, self._on_activity = is_current, on_activity

    def on_frame(self) -> None:
        with self._lock:
            self._check()
            self._on_activity()

    def on_event(self, rank: int, event: RawEvent) -> None:
        with self._lock:
            self._check()
            self._listener.on_event(rank, event)

    def on_ready(self, rank: int, address: wire.Address | None) -> None:
        self._listener.on_ready(rank, address)  # without the lock, as it sends checkpoints

    def on_artifact(self, file: IncomingFile) -> None:
        with self._lock:
            self._check()
            self._listener.on_artifact(file)

    def on_checkpoint(self, file: IncomingFile) -> None:
        with self._lock:
            self._check()
            self._listener.on_checkpoint(file)

    def on_end(self, rank: int, rank_end: RankEnd) -> None:
        with self._lock:
            self._check()
            self._listener.on_end(rank, rank_end)

    def new_path(self) -> str:
        return self._listener.new_path()

    def _check(self) -> None:
        if not self._is_current():
            raise wire.ConnectionLost("the rank has another connection by now, or its attempt is over")
