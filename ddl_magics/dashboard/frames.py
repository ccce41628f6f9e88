"""The table of the workers at moments of a run, for a replay: of a longer run the moments are further apart."""

import base64
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .workers import Worker

#: Moments that are kept at most, and rows of them all together: of many workers there are fewer moments.
MOMENTS = 256
ROWS = 4096
LEAST_MOMENTS = 8


class Frame(NamedTuple):
    """`rows` at a moment, in seconds since the run was created: base64 of float32, `workers.COLUMNS` of each worker."""

    seconds: float
    rows: str


class Frames:
    """Rows of the table over time. `add` may be called as often as one likes: it keeps what it needs."""

    def __init__(self, ranks: int) -> None:
        self.limit = max(min(MOMENTS, ROWS // max(ranks, 1)), LEAST_MOMENTS)
        self._seconds: list[float] = []
        self._rows: list[str] = []
        self._apart = 0.0

    def add(self, seconds: float, workers: Iterable[Worker]) -> None:
        """The workers as they are at this moment, which is later than those before."""
        if self._seconds and seconds < self._seconds[-1] + self._apart:
            return
        numbers = np.array([worker.numbers() for worker in workers], dtype="<f4")
        self._seconds.append(round(seconds, 3))
        self._rows.append(base64.b64encode(numbers.tobytes()).decode())
        if len(self._seconds) > self.limit:
            self._apart = 2 * (seconds - self._seconds[0]) / self.limit
            self._seconds, self._rows = self._seconds[::2], self._rows[::2]

    def all(self) -> list[Frame]:
        """What is kept, in order."""
        return list(map(Frame, self._seconds, self._rows))
