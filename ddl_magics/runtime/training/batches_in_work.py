"""The slices that a loop of the cell's own works on: how an update's gradients are weighed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..gradients.batch import Share, fingerprint

_UNEVEN = (
    "one update used batches of %d and %d rows, of which this worker has %d and %d: no weight is right for both; read "
    "one batch for each update, or make all batches of a multiple of %d rows (drop_remainder=True)"
)


class BatchesInWork:
    """The shares read since the last update; after it, the newest of each reader."""

    def __init__(self, size: int) -> None:
        """size: how many ranks there are."""
        self._size = size
        self._newest: dict[Any, Share] = {}  # by reader, the last one read at the end
        self._fresh: list[tuple[Any, Share]] = []

    def read(self, reader: Any, share: Share) -> None:
        self._newest.pop(reader, None)
        self._newest[reader] = share
        self._fresh.append((reader, share))

    def close(self, reader: Any) -> None:
        self._newest.pop(reader, None)
        self._fresh = [(other_reader, share) for other_reader, share in self._fresh if other_reader is not reader]

    def __bool__(self) -> bool:
        return bool(self._newest)

    def use(self) -> tuple[int, int, np.ndarray]:
        """(rows, total, sample) of the shares of an update, as of one `Share`.

        rows: of this rank; total: of all, -1 if unknown; sample: fingerprints, float64 of shape (1, n). ValueError if
        the rank's part of the rows differs from share to share.
        """
        shares = [share for _, share in self._fresh] or list(self._newest.values())[-1:]
        self._fresh = []
        rows, totals = ([int(getattr(share, name)) for share in shares] for name in ("rows", "total"))
        if min(totals) < 0:
            return sum(rows), -1, np.zeros((1, 1))
        for row, total in zip(rows, totals):
            if row * totals[0] != rows[0] * total:
                raise ValueError(_UNEVEN % (totals[0], total, rows[0], row, self._size))
        samples = [[np.asarray(tensor.numpy()) for tensor in share.sample] for share in shares]
        checks = [fingerprint(sample, int(share.total)) for sample, share in zip(samples, shares)]
        return rows[-1], totals[-1], np.array([np.sum(checks, axis=0)], np.float64)
