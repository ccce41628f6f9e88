"""Frames of the workers' table over the course of a run, for a replay. The longer the run, the fewer per second."""

import base64
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .series import single
from .workers import Worker

#: Bounds of the number of frames and of the rows of all frames: a job of many workers has fewer frames.
MAX_FRAMES = 256
MAX_ROWS = 4096
MIN_FRAMES = 8


class Frame(NamedTuple):
    """The table at a time.

    Attributes:
        seconds: seconds since the run was created.
        rows: base64 of float32 of shape (workers, `workers.COLUMNS`).
    """

    seconds: float
    rows: str


class Frames:
    """A bounded number of frames, evenly spaced over the run."""

    def __init__(self, ranks: int) -> None:
        self.limit = max(min(MAX_FRAMES, MAX_ROWS // max(ranks, 1)), MIN_FRAMES)
        self._seconds: list[float] = []
        self._rows: list[str] = []
        self._interval = 0.0

    def add(self, seconds: float, workers: Iterable[Worker]) -> None:
        """Add the workers' current numbers; dropped if the last frame is too recent. Call it in order of time."""
        if self._seconds and seconds < self._seconds[-1] + self._interval:
            return
        numbers = single([worker.numbers() for worker in workers])
        self._seconds.append(round(seconds, 3))
        self._rows.append(base64.b64encode(numbers.tobytes()).decode())
        if len(self._seconds) > self.limit:
            self._interval = 2 * (seconds - self._seconds[0]) / self.limit
            self._seconds, self._rows = self._seconds[::2], self._rows[::2]

    def __iter__(self) -> Iterator[Frame]:
        """The frames in order of time."""
        return map(Frame, self._seconds, self._rows)
