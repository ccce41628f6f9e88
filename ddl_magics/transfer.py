"""How far a file is that comes from the cluster: told to those who look while it takes a while, and never stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ddl_magics.runtime import events as ev

#: What takes no longer is not worth a line, and a line comes no more often.
TELL_SECONDS = 1.0


class Transfer:
    """One file on its way; `tell` gets events of kind "transfer": {"name", "done", "size"} in bytes.

    The last of them has `done` equal to `size`, also where the transfer was given up: there is nothing more to show.
    """

    def __init__(self, name: str, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._name = name
        self._tell = tell
        self._told = time.monotonic()
        self._size: int | None = None

    def at(self, done: int, size: int) -> None:
        """`done` bytes of `size` are here."""
        now = time.monotonic()
        if now - self._told >= TELL_SECONDS and done < size:
            self._told, self._size = now, size
            self._say(done, size)

    def close(self) -> None:
        """It has ended."""
        if self._size is not None:
            self._say(self._size, self._size)

    def _say(self, done: int, size: int) -> None:
        self._tell(ev.make("transfer", ev.JOB, name=self._name, done=done, size=size))
