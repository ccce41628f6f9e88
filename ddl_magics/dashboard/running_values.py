"""The running values of metrics within an epoch: those of each rank, and from them those of the whole job."""

from collections.abc import Iterator
from math import isfinite

from ..runtime.events import Steps

#: Rank -> value; None where it is not finite.
Values = dict[int, float | None]


class RunningValues:
    """What the ranks' steps have reported in the newest epoch.

    Keras' running value of a metric is a mean over the rows that a rank has trained on since the epoch began. So the
    job's is the mean of the ranks' values, weighted by these rows.
    """

    def __init__(self) -> None:
        self._epoch = (-1, -1)
        self._rows: dict[int, int] = {}
        self._models = 1
        self._values: dict[str, Values] = {}

    def begin(self, models: int) -> None:
        """A fit begins. models: of an ensemble; 1 where the ranks train one model."""
        self._models = models

    def add(self, event: Steps) -> None:
        """Add a rank's steps. Those of an earlier epoch are ignored."""
        epoch, rank = (event.fit, event.epoch), event.rank
        if epoch < self._epoch:
            return
        if epoch > self._epoch:
            self._epoch, self._rows, self._values = epoch, {}, {}
        # A rank that begins the epoch anew, in another attempt, counts its rows anew.
        self._rows[rank] = event.rows + (self._rows.get(rank, 0) if event.step else 0)
        for name, value in event.metrics.items():
            self._values.setdefault(name, {})[rank] = value

    def of(self, event: Steps) -> Iterator[tuple[str, Values]]:
        """For each metric of a rank's event: its name, and the newest value of each rank.

        Of an epoch that has ended meanwhile, the event has the only value.
        """
        newest = (event.fit, event.epoch) == self._epoch
        for name, value in event.metrics.items():
            yield name, self._values[name] if newest else {event.rank: value}

    def job(self, event: Steps) -> Iterator[tuple[str, float | None]]:
        """For each metric of a rank's event: its name, and the job's value. None if that of a rank is not finite.

        The models of an ensemble are not averaged: the value is the event's.
        """
        for name, values in self.of(event):
            yield name, self._mean(values) if self._models == 1 else event.metrics[name]

    def _mean(self, values: Values) -> float | None:
        total, weights = 0.0, 0
        for rank, value in values.items():
            if value is None:
                return None
            weight = max(self._rows.get(rank, 0), 1)
            # As floats: a damaged whole number would overflow, where a float becomes infinite.
            total, weights = total + weight * float(value), weights + weight
        return total / weights if isfinite(total) else None
