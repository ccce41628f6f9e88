"""Metrics of the whole job: their states, summed over the ranks."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from ..rank.peers import Peers
from ..trial import starts_at_zero
from .reduce import assign


class MetricSums:
    """Sums the states of Keras' metrics over the ranks, and remembers which of them add up.

    A state that starts at zero adds up over ranks; another needs a rule that only its author knows.

    gathered: metrics whose states are those of the whole job on every rank.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.gathered: set[Any] = set()
        self._additive: dict[int, Any] = {}  # by id; the metric is kept, so that no other gets its id

    def reduce(self, kind: int, metrics: Sequence[Any], averaged: Sequence[Any]) -> None:
        """Make the states of `metrics` those of the whole job, and `averaged` variables the mean over ranks.

        kind: of the collective. The sum is in float64. ValueError names a metric that does not add up.
        """
        single = [single_metric for metric in metrics for single_metric in parts_of(metric)]
        for metric in single:
            if metric not in self.gathered:
                self._check(metric)
        states = [variable for metric in metrics for variable in metric.variables]
        values = [*self.parts_of_sum(states), *map(np.asarray, averaged)]
        flat = np.concatenate([np.asarray(value, np.float64).reshape(-1) for value in values] or [np.zeros(0)])
        announced = self._peers.allreduce(flat, kind, repeats=not states)
        flat[sum(value.size for value in values[: len(states)]) :] /= len(announced)  # those that are in the sum
        assign([*states, *averaged], flat)

    def parts_of_sum(self, states: Sequence[Any]) -> list[np.ndarray]:
        """Copies of these variables of metrics, in float64, whose sums over the ranks are those of the whole job."""
        zeroed = set() if self._peers.position == 0 else self.variables_of_gathered()  # the chief's are enough
        values = [np.asarray(variable).astype(np.float64) for variable in states]
        return [np.zeros_like(value) if id(state) in zeroed else value for state, value in zip(states, values)]

    def variables_of_gathered(self) -> set[int]:
        """The ids of the variables of `gathered`."""
        return {id(variable) for metric in self.gathered for variable in metric.variables}

    def _check(self, metric: Any) -> None:
        if id(metric) in self._additive:
            return
        if not starts_at_zero(metric):
            raise ValueError(
                "the metric %r has a state that does not start at zero, so that it cannot be summed over workers; "
                "write it as a sum and a count, or leave it out" % metric.name
            )
        self._additive[id(metric)] = metric


def parts_of(metric: Any) -> list[Any]:
    """A metric's parts: Keras 3 has one metric of all in `compile`."""
    return list(getattr(metric, "metrics", None) or [metric])
