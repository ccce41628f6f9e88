"""Progress of a file that is fetched from the cluster. It is shown in views, never stored."""

from __future__ import annotations

import time
from collections.abc import Callable

from ddl_magics.runtime import events as ev

#: Time before the first report, and between reports. A shorter transfer is not reported.
REPORT_SECONDS = 1.0


class Transfer:
    """Reports the transfer of one file, as events of kind "transfer": {"name", "done", "size"}, in bytes.

    The last event has `done` equal to `size`, even if the transfer failed, so that views stop showing it.
    """

    def __init__(self, name: str, report: Callable[[ev.RawEvent], None]) -> None:
        self._name = name
        self._report = report
        self._last_report = time.monotonic()
        self._size: int | None = None

    def progress(self, received: int, size: int) -> None:
        """`received` of `size` bytes have arrived."""
        now = time.monotonic()
        if now - self._last_report >= REPORT_SECONDS and received < size:
            self._last_report, self._size = now, size
            self._emit(received, size)

    def close(self) -> None:
        """The transfer has ended."""
        if self._size is not None:
            self._emit(self._size, self._size)

    def _emit(self, received: int, size: int) -> None:
        self._report(ev.make("transfer", ev.JOB, name=self._name, done=received, size=size))
