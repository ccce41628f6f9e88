"""Requests of the last minute: how many, how long they took, how many failed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

SECONDS = 60
#: Latencies are counted in bins from 10 microseconds to 100 seconds, each 5 % wider than the one before.
_FIRST_SECONDS, _GROWTH, _BINS = 1e-5, 1.05, 331
_EDGES = _FIRST_SECONDS * _GROWTH ** np.arange(_BINS)
#: The window of the request rate.
RATE_SECONDS = 5


class Statistics:
    """Counts requests. Called in one thread."""

    def __init__(self) -> None:
        self.requests = self.rows = self.errors = 0
        self._bins = np.zeros((SECONDS, _BINS), np.int64)
        self._errors = np.zeros(SECONDS, np.int64)
        self._second = int(time.monotonic())

    def count(self, latency: float, rows: int, failed: bool) -> None:
        """Count a request; latency in seconds."""
        row = self._advance()
        self.requests += 1
        self.rows += rows
        self._bins[row, min(int(np.searchsorted(_EDGES, latency)), _BINS - 1)] += 1
        if failed:
            self.errors += 1
            self._errors[row] += 1

    def to_json(self) -> dict[str, Any]:
        """Totals, the rate of the last `RATE_SECONDS`, and latencies of the last minute: None without requests.

        `rates` has the requests of each second of the last minute, oldest first, without the present second.
        """
        row = self._advance()
        order = [(row + 1 + i) % SECONDS for i in range(SECONDS - 1)]
        rates = self._bins.sum(axis=1)[order]
        return {
            "requests": self.requests,
            "rows": self.rows,
            "errors": self.errors,
            "rate": float(rates[-RATE_SECONDS:].mean()),
            "recent": int(self._bins.sum()),
            "recent_errors": int(self._errors.sum()),
            "latency": {f"p{percent}": self._quantile(percent / 100) for percent in (50, 95, 99)},
            "rates": rates.tolist(),
        }

    def _quantile(self, share: float) -> float | None:
        """The upper edge of the quantile's bin, in seconds: at most 5 % too long."""
        counts = self._bins.sum(axis=0).cumsum()
        if not counts[-1]:
            return None
        return float(_EDGES[int(np.searchsorted(counts, share * counts[-1]))])

    def _advance(self) -> int:
        """Empty the rows of the seconds since the last call; returns the row of the present second."""
        second = int(time.monotonic())
        for passed in range(max(self._second + 1, second - SECONDS + 1), second + 1):
            self._bins[passed % SECONDS] = 0
            self._errors[passed % SECONDS] = 0
        self._second = second
        return second % SECONDS
