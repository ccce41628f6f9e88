"""BatchNormalization whose statistics are those of the whole global batch: what its layers exchange within a step.

For each channel, a layer computes from its own rows the number of values, their sum and the sum of their squares.
Summed over the ranks, these give the mean and the variance that one process has of all rows. Their gradients are summed
as well, as every rank's loss depends on them: one exchange in the forward pass and one in the backward pass, of three
numbers a channel.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow as tf

from ..keras_types import Layer, Model, Tensor
from ..rank.config import RankConfig
from ..rank.reporter import Reporter
from .batch import Share
from .traced_step import TracedStep
from .within_step import WithinStep

_SLICES = (
    "BatchNormalization takes its statistics from each worker's part of a batch; --sync-batchnorm takes them from the "
    "whole batch"
)
_NO_BATCH = (
    "BatchNormalization(synchronized=True) changes nothing here: workers of --strategy %s%s take steps of their own, "
    "and there is no whole batch"
)


class SyncBatchNorm:
    """What layers of the class `kind` do in a rank."""

    def __init__(
        self, config: RankConfig, reporter: Reporter, traced: TracedStep, within: WithinStep, kind: Any
    ) -> None:
        self._config, self._reporter, self._traced, self._within = config, reporter, traced, within
        self._kind = kind

    def synchronizes(self, layer: Layer) -> bool:
        """Whether the statistics of `layer` are those of all ranks' rows."""
        return self._config.reduces_gradients and isinstance(layer, self._kind) and self._is_wanted(layer)

    def _is_wanted(self, layer: Layer) -> bool:
        return bool(layer.synchronized) or bool(self._config.spec.sync_batchnorm)

    def begin_fit(self, model: Model) -> None:
        """Say once what a reader of the model would not expect of its statistics."""
        config = self._config
        if config.size == 1:
            return
        layers = [layer for layer in model._flatten_layers() if isinstance(layer, self._kind) and layer.trainable]
        if config.reduces_gradients and not all(self._is_wanted(layer) for layer in layers):
            self._reporter.notice_once("info", _SLICES)
        if not config.reduces_gradients and any(layer.synchronized for layer in layers):
            rule = " --rule " + config.rule.text if config.spec.strategy == "allreduce" and config.rule else ""
            self._reporter.notice_once("warning", _NO_BATCH % (config.spec.strategy, rule))

    def moments(
        self, x: Tensor, axes: Sequence[int], mask: Tensor | None = None, slack: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """`moments` over all ranks' rows. Called while a step is traced; outside of `fit` ranks count alike."""
        share, number = self._traced.share, self._within.number()

        def total(values: Tensor) -> Tensor:
            if share is not None:  # a rank without rows computes on one row that does not count
                values = tf.where(share.rows > 0, values, tf.zeros_like(values))
            return self._total(values, share, number, order=0)

        return moments(x, axes, total, mask, slack)

    def _total(self, values: Tensor, share: Share | None, number: int, order: int) -> Tensor:
        """The sum of `values` over the ranks, for exchange `number` of a step; order: of the derivative.

        The loss of the job is the mean of the ranks' losses, weighted as exchange.py weighs their gradients. So its
        gradient by one rank's values is the weighted sum of all ranks' gradients by the total. The weight is divided
        out again here, as exchange.py applies it later.
        """

        @tf.custom_gradient
        def total(values: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
            def gradient(upstream: Tensor) -> Tensor:
                weight = self._weight(share)
                weighted = tf.where(weight > 0, upstream * weight, tf.zeros_like(upstream))
                return tf.math.divide_no_nan(self._total(weighted, share, number, order + 1), weight)

            return self._within.total(values, number, order), gradient

        return total(values)

    def _weight(self, share: Share | None) -> Tensor:
        """This rank's weight beside the others'; known only when the losses are, after the layer's call."""
        if share is None:
            return tf.constant(1.0, tf.float64)
        rows = tf.cast(share.rows, tf.float64)
        return tf.minimum(rows, 1.0) if self._traced.sums else rows


def moments(
    x: Tensor,
    axes: Sequence[int],
    total: Callable[[Tensor], Tensor],
    mask: Tensor | None = None,
    slack: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """(mean, variance) of `x` over `axes`, each of shape (channels,) and of its dtype; without Bessel's correction, as
    `keras.ops.moments` and Keras' BatchNormalization.

    total: sums a float64 tensor of shape (3, channels) over those who take part. mask: of the shape of x without its
    last axis; False entries do not count. slack: added to the number of values that the sums are divided by.
    """
    # With squares about zero, in float64: from 32 bits on there is nothing that the subtraction below could cancel.
    count, mean, variance = (tf.cast(value, tf.float64) for value in _local_moments(x, axes, mask))
    count, values, squares = tf.unstack(total(tf.stack([count, count * mean, count * (variance + tf.square(mean))])))
    mean = values / (count + slack)
    variance = (squares - 2 * mean * values + count * tf.square(mean)) / (count + slack)
    return tf.cast(mean, x.dtype), tf.cast(tf.maximum(variance, 0.0), x.dtype)


def _local_moments(x: Tensor, axes: Sequence[int], mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """(number of values, mean, variance) of one rank, each of shape (channels,); zeros where there is no value."""
    if mask is None:
        mean, variance = tf.nn.moments(x, axes)
        return tf.fill(tf.shape(mean), tf.size(x, tf.int64) // tf.size(mean, tf.int64)), mean, variance
    is_kept = tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(x))
    count = tf.reduce_sum(tf.cast(is_kept, x.dtype), axes, keepdims=True)
    divisor = tf.maximum(count, 1)
    mean = tf.reduce_sum(tf.where(is_kept, x, 0), axes, keepdims=True) / divisor
    variance = tf.reduce_sum(tf.square(tf.where(is_kept, x - mean, 0)), axes, keepdims=True) / divisor
    return tuple(tf.squeeze(value, axes) for value in (count, mean, variance))
