"""Rows of all ranks, with gradients."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow as tf

from ..keras_types import Tensor
from .traced_step import TracedStep
from .within_step import WithinStep


def gather_for_one_loss(
    within: WithinStep, tensors: Sequence[Tensor], report: Callable[[int], None], sums: bool
) -> list[Tensor]:
    """The rows of all ranks, for a loss that every rank computes of all rows.

    The gradient is that of this rank's own rows. It is scaled, because exchange.py weighs ranks by their rows: the
    weighted sum over ranks is the gradient of the one loss.

    Args:
        tensors: Each of shape (rows, ...), of any dtype; ranks may have different numbers of rows.
        report: Called with the size in bytes.
        sums: The gradients of the step are added up, not averaged.

    Returns:
        Tensors of the same dtypes and of shape (rows of all ranks, ...), in order of rank.
    """

    def backward(
        upstream: Sequence[Tensor], local: Sequence[Tensor], begins: Sequence[Tensor], factor: Tensor
    ) -> list[Tensor]:
        factor = tf.minimum(factor, 1.0) if sums else factor
        return [_rows(gradient, tensor, begin, factor) for gradient, tensor, begin in zip(upstream, local, begins)]

    return _differentiable(within, tensors, backward, report)


def all_gather(within: WithinStep, traced: TracedStep, tensor: Tensor) -> Tensor:
    """The rows of all ranks, for losses that may differ from rank to rank: the job's loss is their mean, by rows.

    The gradient of a rank's rows is summed over all ranks: one exchange in the backward pass.

    Args:
        tensor: Of shape (rows, ...); ranks may have different numbers of rows.

    Returns:
        A tensor of shape (rows of all ranks, ...) and of the same dtype, in order of rank.
    """
    if traced.alone:
        traced.gathers = True
        return tensor

    def backward(
        upstream: Sequence[Tensor], local: Sequence[Tensor], begins: Sequence[Tensor], factor: Tensor
    ) -> list[Tensor]:
        share = traced.share
        rows = tf.constant(1.0, tf.float64) if share is None else tf.cast(share.rows, tf.float64)
        (gradient,) = upstream
        weighted = tf.where(rows > 0, gradient * tf.cast(rows, gradient.dtype), tf.zeros_like(gradient))
        total = within.total(weighted, within.number(), 1)
        return [_rows(total, local[0], begins[0], tf.math.divide_no_nan(tf.constant(1.0, tf.float64), rows))]

    return _differentiable(within, [tensor], backward, lambda size: None)[0]


def _differentiable(
    within: WithinStep,
    tensors: Sequence[Tensor],
    backward: Callable[..., list[Tensor]],
    report: Callable[[int], None],
) -> list[Tensor]:
    """`within.gather`; `backward` makes the gradients of floating tensors."""
    if within.alone():
        return list(tensors)
    floating = [i for i, tensor in enumerate(tensors) if tensor.dtype.is_floating]
    without_gradient: dict[int, Tensor] = {}

    @tf.custom_gradient
    def gathered(*floats: Tensor) -> Any:
        every = list(tensors)
        for i, tensor in zip(floating, floats):
            every[i] = tensor
        answer = within.gather(every, report)
        without_gradient.update({i: tensor for i, tensor in enumerate(answer.tensors) if i not in floating})
        begins = [answer.begins[i] for i in floating]

        def gradient(*upstream: Tensor) -> list[Tensor]:
            return backward(upstream, floats, begins, answer.factor)

        return tuple(answer.tensors[i] for i in floating), gradient

    result = dict(zip(floating, gathered(*(tensors[i] for i in floating)))) if floating else {}
    if not floating:
        without_gradient.update(enumerate(within.gather(tensors, report).tensors))
    return [result[i] if i in result else without_gradient[i] for i in range(len(tensors))]


def _rows(upstream: Tensor, local: Tensor, begin: Tensor, factor: Tensor) -> Tensor:
    """The gradient of this rank's rows, cut from that of all rows, times `factor`; zeros if `factor` is 0."""
    count = tf.shape(local, out_type=tf.int64)[0]
    zeros = tf.zeros_like(local)
    return tf.cond(factor > 0, lambda: upstream[begin : begin + count] * tf.cast(factor, upstream.dtype), lambda: zeros)
