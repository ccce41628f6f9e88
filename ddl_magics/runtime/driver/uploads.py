"""What a notebook sends for a run, in parts: before its launch the zip of --files, and later its model."""

from __future__ import annotations

import threading

#: The most that is kept of one run, and of how many: an older one, which was never launched, is dropped.
MAX_BYTES = 64 << 20
MAX_RUNS = 4


class UploadProblem(ValueError):
    """What was sent cannot be used: one line."""


_lock = threading.Lock()
_parts: dict[str, dict[int, bytes]] = {}
_counts: dict[str, int] = {}


def keep(run: str, index: int, count: int, part: bytes) -> None:
    """Keep part `index` of `count`; the same part may come again. `UploadProblem` for one that is too much."""
    with _lock:
        if not 0 <= index < count:
            raise UploadProblem("there is no part %d of %d" % (index, count))
        parts = _parts.setdefault(run, {})
        _counts[run] = count
        parts[index] = part
        if sum(map(len, parts.values())) > MAX_BYTES:
            _forget(run)
            raise UploadProblem("what is sent is too large: the driver takes %d MB" % (MAX_BYTES >> 20))
        while len(_parts) > MAX_RUNS:
            _forget(next(iter(_parts)))


def take(run: str) -> bytes:
    """All parts together. `UploadProblem` where one is missing."""
    with _lock:
        parts, count = _parts.get(run, {}), _counts.get(run, -1)
        if len(parts) != count:
            raise UploadProblem("what was sent did not arrive: run the cell again")
        _forget(run)
    return b"".join(parts[index] for index in range(count))


def _forget(run: str) -> None:
    _parts.pop(run, None)
    _counts.pop(run, None)
