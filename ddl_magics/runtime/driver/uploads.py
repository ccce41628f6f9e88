"""What a notebook sends for a run, in chunks: before its launch the zip of --files, and later its model."""

from __future__ import annotations

import threading

#: The most that is kept of one run, and of how many: an older one, which was never launched, is dropped.
MAX_BYTES = 64 << 20
MAX_RUNS = 4


class UploadProblem(ValueError):
    """What was sent cannot be used: one line."""


_lock = threading.Lock()
_chunks: dict[str, dict[int, bytes]] = {}
_counts: dict[str, int] = {}


def keep(run: str, index: int, count: int, chunk: bytes) -> None:
    """Keep chunk `index` of `count`; the same chunk may come again. `UploadProblem` for one that is too much."""
    with _lock:
        if not 0 <= index < count:
            raise UploadProblem("there is no part %d of %d" % (index, count))
        chunks = _chunks.setdefault(run, {})
        _counts[run] = count
        chunks[index] = chunk
        if sum(map(len, chunks.values())) > MAX_BYTES:
            _forget(run)
            raise UploadProblem("what is sent is too large: the driver takes %d MB" % (MAX_BYTES >> 20))
        while len(_chunks) > MAX_RUNS:
            _forget(next(iter(_chunks)))


def take(run: str) -> bytes:
    """All chunks together. `UploadProblem` where one is missing."""
    with _lock:
        chunks, count = _chunks.get(run, {}), _counts.get(run, -1)
        if len(chunks) != count:
            raise UploadProblem("what was sent did not arrive: run the cell again")
        _forget(run)
    return b"".join(chunks[index] for index in range(count))


def _forget(run: str) -> None:
    _chunks.pop(run, None)
    _counts.pop(run, None)
