"""A line of a chart with a bounded number of points, however long the run: consecutive points are merged into buckets.

The counts of the buckets always add up to the counts that were added, so that no step is lost.
"""

from math import isnan, nan
from typing import Any, Literal

import numpy as np

#: Maximum number of buckets of a series: about one per pixel of a chart.
POINTS = 300


def single(values: Any) -> np.ndarray:
    """Numbers, or rows of them, as float32 for a page; those that are too large become infinite."""
    with np.errstate(over="ignore"):
        return np.array(values, dtype="<f4")


class Series:
    """Buckets (x, y, count) in the order of arrival.

    Attributes:
        x: where each bucket ends.
        y: the mean of the merged values, weighted by their counts (`keep="mean"`), or the newest value (`keep="last"`,
            for series that map one coordinate to another). None and NaN are counted but have no weight.
        counts: how many steps, or other units, each bucket stands for.
        generation: changes when final buckets are merged; whoever follows the series has to read it again then.
        version: changes with each point.

    Args:
        limit: maximum number of buckets, even.

    Raises:
        ValueError: `limit` is odd or less than 2.
    """

    def __init__(self, limit: int = POINTS, keep: Literal["mean", "last"] = "mean") -> None:
        if limit < 2 or limit % 2:
            raise ValueError(f"the limit of a series must be even and at least 2, not {limit}")
        self.limit = limit
        self.keep = keep
        self.x: list[float] = []
        self.y: list[float] = []
        self.counts: list[int] = []
        self._weights: list[int] = []
        self._width = 1
        self.generation = 0
        self.version = 0

    def __len__(self) -> int:
        return len(self.x)

    def add(self, x: float, y: float | None, count: int = 1) -> None:
        """Append a point that stands for `count` steps or other units."""
        value = nan if y is None else float(y)
        weight = 0 if isnan(value) else max(count, 1)
        self.version += 1
        if self.counts and self.counts[-1] + count <= self._width:
            self._merge_into_last(float(x), value, count, weight)
            return
        if len(self.x) == self.limit:
            self._halve()
        self.x.append(float(x))
        self.y.append(value)
        self.counts.append(count)
        self._weights.append(weight)

    def _merge_into_last(self, x: float, y: float, count: int, weight: int) -> None:
        self.x[-1] = x
        self.y[-1] = self._merged(self.y[-1], self._weights[-1], y, weight)
        self.counts[-1] += count
        self._weights[-1] += weight

    def _merged(self, y0: float, weight0: int, y1: float, weight1: int) -> float:
        if not weight1:
            return y0
        if not weight0 or self.keep == "last":
            return y1
        return y0 + (y1 - y0) * (weight1 / (weight0 + weight1))

    def _halve(self) -> None:
        pairs = range(0, len(self.x), 2)
        self.y = [self._merged(self.y[i], self._weights[i], self.y[i + 1], self._weights[i + 1]) for i in pairs]
        self.x = self.x[1::2]
        self.counts = [self.counts[i] + self.counts[i + 1] for i in pairs]
        self._weights = [self._weights[i] + self._weights[i + 1] for i in pairs]
        # New buckets grow to the size of the old ones, so that the line is equally dense everywhere.
        self._width = max(1, sum(self.counts) // len(self.counts))
        self.generation += 1
