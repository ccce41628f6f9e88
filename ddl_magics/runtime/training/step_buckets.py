"""A rank's steps, reported in buckets: how many, their rows, and where their time went."""

from __future__ import annotations

import time
from typing import Mapping, Protocol

from ..rank.data_wait import Sums
from ..rank.rank import Rank

FLUSH_SECONDS = 0.25


class Rows(Protocol):
    """Counts the rows that this rank has trained on."""

    @property
    def total(self) -> int: ...


class StepBuckets:
    """Sends the events "steps". Between `begin_step` and `end_step` a step is in progress."""

    def __init__(self, rank: Rank, rows: Rows) -> None:
        self._progress, self._reporter = rank.progress, rank.reporter
        self._timings, self._rows, self._data_wait = rank.peers.timings, rows, rank.data_wait
        self.open(0)

    def open(self, step: int) -> None:
        """Begin a bucket at `step`."""
        self._open(step, self._data_wait.sums(), self._rows.total)

    def _open(self, step: int, sums: Sums, rows: int) -> None:
        """sums, rows: as they are now."""
        self._first_step, self._before, self._rows_before = step, sums, rows
        self._began = time.monotonic()
        self._read_apart = 0.0  # seconds of reads between the steps
        self._outside = self._data_wait.outside_graphs  # when a step last began or ended
        self._stepping = self._waited = self._copied = self._wired = self._hidden = 0.0

    def begin_step(self) -> None:
        self._step_began = time.monotonic()
        read = self._data_wait.outside_graphs
        self._read_apart += read - self._outside
        self._outside = read
        self._timings.reset()

    def end_step(self) -> bool:
        """Count the step. Whether the bucket is old enough to be sent."""
        ended = time.monotonic()
        self._outside = self._data_wait.outside_graphs
        self._stepping += ended - self._step_began
        self._waited += self._timings.waited
        self._copied += self._timings.copied
        self._wired += self._timings.wired
        self._hidden += self._timings.hidden
        self._progress.step += 1
        return ended - self._began >= FLUSH_SECONDS

    @property
    def count(self) -> int:
        """Steps in the bucket."""
        return self._progress.step - self._first_step

    def flush(self, metrics: Mapping[str, float | None]) -> None:
        """Send the bucket, if it has steps, and begin the next. metrics: this rank's running values."""
        progress = self._progress
        if not self.count:
            return
        sums, rows = self._data_wait.sums(), self._rows.total
        data, within_steps = self._data(sums)
        self._reporter.emit(
            "steps",
            fit=progress.fit,
            epoch=progress.epoch,
            step=self._first_step,
            count=self.count,
            rows=rows - self._rows_before,
            seconds=round(time.monotonic() - self._began, 6),
            compute=round(max(0.0, self._stepping - self._waited - within_steps), 6),
            wait=round(self._waited, 6),
            copy=round(self._copied, 6),
            wire=round(self._wired, 6),
            **({"data": round(data, 6)} if data else {}),
            **({"hidden": round(self._hidden, 6)} if self._hidden else {}),
            metrics=metrics,
        )
        self._open(progress.step, sums, rows)

    def _data(self, sums: Sums) -> tuple[float, float]:
        """Seconds that the bucket waited for data: (all, of these within its steps)."""
        steps = sums.steps - self._before.steps
        within = sums.reads - self._before.reads - self._read_apart
        within = min(max(0.0, within), max(0.0, self._stepping - max(self._waited, steps)))
        return self._read_apart + within, within
