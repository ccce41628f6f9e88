"""The losses of a model in a step: a `compute_loss` of the cell, and the metrics that average losses over batches."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import tensorflow as tf

from ..gradients.batch import LocalShare, Share
from ..gradients.batch_loss import Loss, of_loss
from ..keras_types import Metric, Model, Tensor
from ..trial import INPUT, OUTPUT, TARGET, WEIGHT
from .keras_access import KerasAccess
from .step_context import StepContext


def overrides_loss(access: KerasAccess, model: Model) -> bool:
    """Whether the class of a model has a `compute_loss` of its own."""
    return getattr(type(model), "compute_loss", None) is not getattr(access.base_trainer, "compute_loss", None)


@contextlib.contextmanager
def whole_compute_loss(context: StepContext, access: KerasAccess, model: Model) -> Iterator[None]:
    """Compute a `compute_loss` of the cell as a loss of the whole batch."""
    if not context.config.reduces_gradients or not overrides_loss(access, model):
        yield
        return
    original, roles = model.compute_loss, (INPUT, TARGET, OUTPUT, WEIGHT)
    name = "compute_loss of the model %r" % type(model).__name__

    def compute_loss(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, *args: Any, **kwargs: Any
    ) -> Tensor:
        def loss(x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
            # A trial of the loss alone must not see the losses that layers have added; the trial of a step must.
            is_tried_alone = context.traced.trial and context.traced.factor is None
            with access.without_added_losses(model) if is_tried_alone else contextlib.nullcontext():
                return original(x, y, y_pred, sample_weight, *args, **kwargs)

        arguments = of_loss((x, y, y_pred, sample_weight), roles)
        return context.batch_loss(Loss(loss, name, model, scales=False), arguments)

    with _replaced_method(model, "compute_loss", compute_loss):
        yield


@contextlib.contextmanager
def loss_metrics_by_rows(context: StepContext, access: KerasAccess, model: Model, share: Share) -> Iterator[None]:
    """Weigh the metrics that average losses over batches by this rank's rows of the batch."""
    trackers = access.loss_trackers(model)
    if not trackers:
        yield
        return
    rows, total = tf.cast(share.rows, tf.float64), _rows_of_batch(context, share)
    with contextlib.ExitStack() as replaced:
        for metric in trackers:
            replaced.enter_context(_weighed_by_rows(metric, rows, total))
        yield


def _rows_of_batch(context: StepContext, share: Share) -> Tensor:
    """The rows of all ranks in this step, at least 1: a float64 scalar."""
    if isinstance(share, LocalShare) and context.config.reduces_gradients and context.calls.training:
        rows = tf.cast(share.rows, tf.float64)
        return tf.maximum(context.within.total(rows, context.within.number()), 1.0)
    total = tf.cast(share.total, tf.float64)
    return tf.where(total < 0, tf.cast(share.rows, tf.float64) * context.config.size, total)


def _weighed_by_rows(metric: Metric, rows: Tensor, total: Tensor) -> contextlib.AbstractContextManager[None]:
    update = metric.update_state

    def update_state(value: Tensor, sample_weight: Tensor = None) -> Tensor:
        # Keras passes the number of rows as the weight, where it knows that number.
        return update(value, sample_weight=rows / total if sample_weight is None else rows)

    return _replaced_method(metric, "update_state", update_state)


@contextlib.contextmanager
def _replaced_method(owner: Any, name: str, method: Any) -> Iterator[None]:
    """Give an object of Keras another method. Keras 2 keeps some methods in the object itself."""
    of_object = owner.__dict__.get(name)
    object.__setattr__(owner, name, method)
    try:
        yield
    finally:
        if of_object is None:
            object.__delattr__(owner, name)
        else:
            object.__setattr__(owner, name, of_object)
