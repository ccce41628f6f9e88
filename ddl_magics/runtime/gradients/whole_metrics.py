"""Metrics of any state: those that do not add up over ranks are updated with the rows of all ranks.

Keras' own metrics add up: the state of a batch is the sum of the states of its slices. Whether another one does is
found out by trial. If it does not, a maximum or a set for example, every rank updates it with the outputs and targets
of the whole batch, so that its state is that of one process, on every rank.
"""

from __future__ import annotations

import types
from typing import Any, Callable, Sequence

import tensorflow as tf

from ..keras_types import Metric, Tensor, is_along_rows, is_of_keras
from ..rank.reporter import Reporter
from ..trial import OUTPUT, TARGET, WEIGHT, Leaf, adds_up
from .batch_loss import Arguments
from .metric_sums import MetricSums
from .traced_step import TracedStep
from .within_step import WithinStep

_REFUSED = (
    "the metric %r does not add up over workers, and --gather no forbids to exchange outputs: leave the option out, or "
    "write the metric as a sum and a count"
)
_INEXACT = (
    "the metric %r gets a value without rows, so that its states are added up over the workers, which may not be what "
    "one process computes: give it values of shape (rows, ...)"
)
_SUMMED = (
    "the states of the metric %r are added up over the workers after each epoch, which is not what one process "
    "computes: write the metric as a sum and a count, or use --strategy allreduce"
)


class WholeMetrics:
    """Hooks the updates of metrics: `take`.

    apart: ranks have batches of their own; a metric that does not add up is only reported.
    """

    def __init__(
        self, traced: TracedStep, within: WithinStep, reporter: Reporter, sums: MetricSums, gather: str, apart: bool
    ) -> None:
        self._traced, self._within, self._reporter, self._sums, self._gather = traced, within, reporter, sums, gather
        self._apart = apart
        self._additive: dict[Any, tuple[Metric, bool]] = {}

    def take(self, metric: Metric) -> None:
        """Update `metric` with the rows of all ranks from now on, if its states do not add up."""
        if metric is None or _is_additive(metric) or getattr(metric, "_ddl_taken", False):
            return
        original = metric.update_state

        def update_state(*args: Any, **kwargs: Any) -> Any:
            return self._update(metric, original, args, kwargs)

        object.__setattr__(metric, "update_state", update_state)
        object.__setattr__(metric, "_ddl_taken", True)

    def _update(self, metric: Metric, update: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        traced = self._traced
        if traced.alone or (traced.share is None and not self._apart):
            return update(*args, **kwargs)
        arguments = Arguments((tuple(args), kwargs), _roles(args, kwargs))
        try:
            leaves = arguments.leaves()
        except ValueError:
            self._reporter.notice_once("warning", _INEXACT % metric.name)
            return update(*args, **kwargs)
        key = (id(metric), tuple(leaves))
        if key not in self._additive:  # the metric is kept, so that no other gets its id
            self._additive[key] = (metric, self._adds_up(metric, update, arguments, leaves))
        adds_up = self._additive[key][1]
        if self._apart and not adds_up:
            self._reporter.notice_once("warning", _SUMMED % metric.name)
        if self._apart or (adds_up and metric not in self._sums.gathered):
            return update(*args, **kwargs)
        if self._gather == "no":
            raise ValueError(_REFUSED % metric.name)
        self._sums.gathered.add(metric)
        gathered = self._within.gather(arguments.tensors()).tensors
        with traced.state(alone=True):
            args, kwargs = arguments.packed(gathered)
            return update(*args, **kwargs)

    def _adds_up(
        self, metric: Metric, update: Callable[..., Any], arguments: Arguments, leaves: Sequence[Leaf]
    ) -> bool:
        """Whether the state of a batch is the sum of those of its slices; if `apart`, of its rows."""

        def update_with(tensors: Sequence[Tensor]) -> None:
            args, kwargs = arguments.packed(tensors)
            update(*args, **kwargs)

        with self._traced.state(alone=True, trial=True):
            return adds_up(metric, update_with, leaves, by_row=self._apart)


def _roles(args: Sequence[Any], kwargs: dict[str, Any]) -> list[int]:
    """The role of each tensor: targets and outputs, or values alone, and their weights."""
    by_place = (TARGET, OUTPUT, WEIGHT) if len(args) + len(kwargs) > 1 else (OUTPUT,)
    roles = [role for role, value in zip(by_place, args) for _ in tf.nest.flatten(value)]
    by_name = {"y_true": TARGET, "sample_weight": WEIGHT}
    return roles + [by_name.get(name, OUTPUT) for name in sorted(kwargs) for _ in tf.nest.flatten(kwargs[name])]


def _is_additive(metric: Metric) -> bool:
    """Whether it is a metric of Keras, of a function of Keras if it averages one, and not along the rows."""
    function = getattr(metric, "_fn", None)
    of_keras = function is None or (isinstance(function, types.FunctionType) and is_of_keras(function))
    along_rows = is_along_rows(getattr(metric, "_fn_kwargs", {}).get("axis"))
    return of_keras and is_of_keras(type(metric)) and not along_rows
