"""--sequence-length on the driver: which windows over the rows of time series there are, and who gets which rows.

The rows of a set are sorted by series (--group-by) and, in it, by --order-by. A window begins at every `stride`-th row
of a series and spans `length` + `horizon` rows, the label's row included. Windows are numbered in this order.

A rank stores rows, and not windows, which have most rows in common. The windows for training are therefore cut into C
stretches of consecutive ones, the classes of row_order.py: window i of class c is element i * C + c of the set, so
that rank c % n has the class, and a batch has windows of all times. A stretch is cut again where a series ends. What a
rank stores twice is the rows at the seams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, Tuple

import numpy as np

from ..run_spec import RunSpec
from . import packing
from .columns import DataError
from .row_order import class_count

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Sequences, SeriesKeys, SetName

    Integers = npt.NDArray[np.int64]

#: Of each series, its rows and those of them that are before the date of --validation; int64, 1-D.
Series = Tuple["Integers", "Integers"]
#: Of each series, the row of the set with which its first window begins, and its windows; int64, 1-D.
Windows = Tuple["Integers", "Integers"]


@dataclass(frozen=True)
class SequencePlan:
    """The options of windows. since: of --validation, if that is a date. horizon: 0 without a label."""

    length: int
    horizon: int
    stride: int
    order_by: str
    group_by: Tuple[str, ...]
    since: str | None

    @classmethod
    def from_spec(cls, spec: RunSpec) -> SequencePlan | None:
        """None for a run without windows. Raises `DataError`, one line."""
        length, order_by, validation = spec.sequence_length, spec.order_by, spec.validation
        is_date = isinstance(validation, str) and not validation.isidentifier()
        if length is None or order_by is None:
            if is_date:
                raise DataError("--validation %s: a date needs --sequence-length and --order-by" % validation)
            return None
        horizon = spec.horizon
        if spec.label is None:
            if horizon is not None:
                raise DataError("--horizon %d needs --label: it says which row has the label of a window" % horizon)
            horizon = 0
        stride, group_by = spec.sequence_stride or 1, spec.group_by or ()
        since = str(validation) if is_date else None
        return cls(length, 1 if horizon is None else horizon, stride, order_by, group_by, since)

    @property
    def span(self) -> int:
        """The rows of a window, with that of its label."""
        return self.length + self.horizon

    def series(self, name: str, reported: Iterable[SeriesKeys | None]) -> Series:
        """The time series of a set. reported: of its chunks, in their order. Raises `DataError`, one line."""
        counts_by_series: list[list[int]] = []
        before: tuple[Any, Any] | None = None
        for keys in reported:
            assert keys is not None
            if keys["first_key"] == before:
                raise DataError("%s, %s" % (name, packing.equal_rows(self.order_by, before[0])))
            continued = before is not None and before[0] == keys["first_key"][0]
            for rows, early in keys["segments"]:
                if continued:
                    counts_by_series[-1][0] += rows
                    counts_by_series[-1][1] += early
                else:
                    counts_by_series.append([rows, early])
                continued = False
            before = keys["last_key"]
        counts = np.array(counts_by_series, np.int64)
        return counts[:, 0], counts[:, 1]

    def windows(self, series: Series, fraction: float) -> tuple[Windows, Windows]:
        """(for training, for validation): of each series, the last `fraction` of its windows, or those whose label is
        not before the date, are for validation."""
        rows, early = series
        first_rows = np.cumsum(rows) - rows
        counts = np.where(rows >= self.span, (rows - self.span) // self.stride + 1, 0)
        train = counts
        if fraction:
            train = counts - (fraction * counts + 0.5).astype(np.int64)
        elif self.since is not None:  # those whose last row is among the early ones
            train = np.clip(-(-(early - self.span + 1) // self.stride), 0, counts)
        return (first_rows, train), (first_rows + train * self.stride, counts - train)


class Layout:
    """Where the rows of one kind of windows go.

    total: the windows. stretches: int64 (number, 4), of each stretch of rows the first, the one behind the last, its
    rank, and where it begins among the rows that the rank stores; ascending in the first two. shared: every rank gets
    all windows, in their order.
    """

    def __init__(self, name: SetName, windows: Windows, plan: SequencePlan, size: int, shared: bool) -> None:
        self.name, self._size, self._shared = name, size, shared
        first_rows, counts = windows
        edges = np.concatenate([[0], np.cumsum(counts)])
        self.total = int(edges[-1])
        ranks = 1 if shared else size
        # Windows for validation keep their order: each rank has one stretch of them.
        self._classes = class_count(self.total, ranks) if name == "train" else ranks
        bounds = np.cumsum([0] + [(self.total - c + self._classes - 1) // self._classes for c in range(self._classes)])
        cuts = np.unique(np.concatenate([edges, bounds]))
        begin, self._counts = cuts[:-1], np.diff(cuts)
        series = np.searchsorted(edges, begin, "right") - 1
        self._class = np.searchsorted(bounds, begin, "right") - 1
        first_row = first_rows[series] + (begin - edges[series]) * plan.stride
        lengths = (self._counts - 1) * plan.stride + plan.span
        rank = self._class % ranks
        self._positions = np.zeros(len(begin), np.int64)
        self.stored = [0] * size
        for rank_number in range(ranks):
            stretches = np.flatnonzero(rank == rank_number)
            stops = np.cumsum(lengths[stretches])
            self._positions[stretches] = stops - lengths[stretches]
            self.stored[rank_number] = int(stops[-1]) if len(stretches) else 0
        if shared:
            self.stored = self.stored[:1] * size
        self.stretches = np.stack([first_row, first_row + lengths, rank, self._positions], axis=1)

    def run_blobs(self) -> list[tuple[int, bytes]]:
        """(rank, blob) for each rank: of its runs of windows (class, first row among those that it stores, windows)."""
        blobs = []
        for rank in range(self._size):
            of_rank = slice(None) if self._shared else self._class % self._size == rank
            ranks = 1 if self._shared else self._size
            runs = np.stack([self._class[of_rank] // ranks, self._positions[of_rank], self._counts[of_rank]], axis=1)
            blobs.append((rank, packing.encode({"set": self.name, "classes": self._classes // ranks}, [runs])))
        return blobs


def first_rows(runs: Integers, classes: int, stride: int) -> Integers:
    """Where each window of a rank begins among the rows that it stores, int64, 1-D. runs: as `Layout.run_blobs`."""
    of_class, positions, counts = runs.T
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    rows, number = np.repeat(positions, counts) + within * stride, np.repeat(of_class, counts)
    starts = np.empty(len(rows), np.int64)
    for window_class in range(classes):
        starts[window_class::classes] = rows[number == window_class]
    return starts


def described(plan: SequencePlan, layouts: Iterable[Layout]) -> Sequences:
    """For the manifest."""
    stored = {layout.name: layout.stored for layout in layouts}
    return {"length": plan.length, "horizon": plan.horizon, "stride": plan.stride, "stored": stored}
