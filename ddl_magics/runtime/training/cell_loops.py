"""Loops of the cell's own: `ddl.distribute`, `ddl.result`, `ddl.all_gather`, and equal weights on all ranks."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Sequence

import tensorflow as tf

from ..collectives import announcement
from ..gradients.gathering import all_gather
from ..keras_types import Dataset, Metric, Model, Tensor, Variable
from . import derived_datasets, distributed
from .calls import Call
from .chief_feed import ChiefFeed
from .equal_weights import EqualWeights
from .keras_access import KerasAccess
from .loop_slices import LoopSlices
from .own_loop import OwnLoop
from .owners import owners
from .step_context import StepContext

_NO_RESULT = (
    "ddl.result needs workers that meet, and with --strategy %s they do not: use --strategy allreduce or average, or "
    "metric.result() for this worker's rows"
)


class CellLoops:
    """loop: the steps between two calls of `fit`. slices: what Keras computes in them."""

    def __init__(self, context: StepContext, access: KerasAccess, feed: ChiefFeed) -> None:
        self._context, self._config, self._access, self._feed = context, context.config, access, feed
        self.loop = OwnLoop(context.rank, context.rows, self._average_statistics)
        self.slices = LoopSlices(self.loop, context.traced, context.noise, context.rank.errors)
        self.equal_weights = EqualWeights(context.rank)

    # -- functions of `ddl`

    def distribute(self, data: Any, reduction: str | None) -> Any:
        """`ddl.distribute`."""
        return distributed.distribute(data, reduction, self.slices, self._context.rank.peers, self._feed)

    def result(self, metric: Metric) -> Any:
        """`ddl.result`: of the states of all ranks, which this rank's stay apart from."""
        if self._config.size == 1:
            return metric.result()
        if self._context.rank.peers.ring is None:
            raise RuntimeError(_NO_RESULT % self._config.spec.strategy)
        before = [tf.identity(variable) for variable in metric.variables]
        self._context.metric_sums.reduce(announcement.METRICS, [metric], [])
        result = metric.result()
        for variable, value in zip(metric.variables, before):
            variable.assign(value)
        return result

    def all_gather(self, tensor: Tensor) -> Tensor:
        """`ddl.all_gather`."""
        call = self._context.calls.current
        if not self._config.reduces_gradients or (call is not None and call.kind == "predict"):
            return tensor
        return all_gather(self._context.within, self._context.traced, tf.convert_to_tensor(tensor))

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """While it lasts, this rank may call a model without the others, as `predict` does."""
        return self._context.calls.during(Call("predict", False))

    def all_rows(self, dataset: Dataset) -> Dataset:
        """`ddl.all_rows`."""
        return derived_datasets.all_rows(dataset)

    # -- hooks

    def note_loss(self, original: Callable[..., Tensor], loss: Any, *args: Any, **kwargs: Any) -> Tensor:
        """In place of the call of a loss of Keras."""
        if self._context.calls.current is None:
            self.slices.note_loss(getattr(loss, "reduction", None))
        return original(loss, *args, **kwargs)

    def note_update(self, variables: Sequence[Variable]) -> None:
        """An optimizer is about to update `variables`. Called in a trace, too."""
        if self._context.calls.current is not None:
            return
        if self.equal_weights.is_new(variables):
            for model in owners(self._access.trainer, variables):
                self._context.batchnorm.begin_fit(model)
                self.loop.note(model)
            self.equal_weights.align(variables)
        if not self._config.reduces_gradients:
            self.loop.count_update()

    def prepare(self, model: Model) -> None:
        """Give all ranks equal weights, before the first step of a model that is built."""
        if not model.built:  # Keras 2 raises for the weights of a model without any
            return
        weights = self._access.weights(model)
        if self.equal_weights.is_new(weights):
            self._context.batchnorm.begin_fit(model)
            self.equal_weights.align(weights)

    def _average_statistics(self, models: Sequence[Model]) -> None:
        if self._config.reduces_gradients:
            statistics = [variable for model in models for variable in self._access.statistics(model)]
            if statistics:
                self._context.metric_sums.reduce(announcement.EPOCH, [], statistics)
            self.equal_weights.compare([variable for model in models for variable in model.trainable_variables])
