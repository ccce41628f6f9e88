"""Lengths that a step takes from its rows: those of the whole batch, as one process has them.

A ragged tensor that becomes dense is as long as its longest row, and so is a mask of lengths; TextVectorization without
`output_sequence_length` makes such a tensor. A rank sees a part of the rows, and convolutions, pooling and recurrent
layers without a mask compute otherwise on a shorter axis. So the ranks agree on the lengths within the step.
"""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow

from ..gradients.traced_step import TracedStep
from ..gradients.within_step import WithinStep
from ..keras_types import Tensor
from ..trial.patching import wrap
from .noise import Noise

_IN_A_LOOP = (
    "a length is taken from rows inside of a loop of TensorFlow, such as tf.map_fn, where workers cannot agree on that "
    "of the whole batch: give to_tensor a shape, and sequence_mask a maxlen"
)


class BatchLengths:
    """Agrees on lengths while a step computes on this rank's rows, which is where `noise` is apart."""

    def __init__(self, traced: TracedStep, within: WithinStep, noise: Noise) -> None:
        self._traced, self._within, self._noise = traced, within, noise

    def install(self) -> None:
        wrap(tf.RaggedTensor, "to_tensor", self._to_tensor)
        wrap(tf, "sequence_mask", self._sequence_mask)

    def _to_tensor(
        self,
        original: Callable[..., Tensor],
        ragged: Any,
        default_value: Any = None,
        name: Any = None,
        shape: Any = None,
    ) -> Tensor:
        dense = original(ragged, default_value, name, shape)
        if self._has_all_rows() or _is_fixed(ragged, shape):
            return dense
        sizes = tf.shape(dense, out_type=tf.int64)
        padded = original(ragged, default_value, name, tf.concat([sizes[:1], self._of_batch(sizes[1:])], 0))
        if not tf.executing_eagerly():
            padded.set_shape(dense.shape)
        return padded

    def _sequence_mask(
        self, original: Callable[..., Tensor], lengths: Any, maxlen: Any = None, *args: Any, **kwargs: Any
    ) -> Tensor:
        if maxlen is None and tf.is_tensor(lengths) and not self._has_all_rows():
            longest = tf.reshape(tf.cast(tf.reduce_max(lengths), tf.int64), [1])
            maxlen = tf.cast(self._of_batch(longest)[0], lengths.dtype)
        return original(lengths, maxlen, *args, **kwargs)

    def _has_all_rows(self) -> bool:
        traced = self._traced
        if traced.trial:
            return traced.factor is None or not tf.executing_eagerly()
        return traced.share is None or traced.alone or not self._noise.apart

    def _of_batch(self, sizes: Tensor) -> Tensor:
        """The largest of all ranks' `sizes`, a vector of int64.

        A rank without rows computes on a row of no weight, and its sizes do not count.

        Raises:
            ValueError: In a loop, which ranks may repeat differently often.
        """
        if self._traced.trial:
            return self._traced.gathering.longest(sizes)
        if _is_in_loop(self._traced.graph):
            raise ValueError(_IN_A_LOOP)
        (sizes_of_ranks,) = self._within.gather([sizes[tf.newaxis]]).tensors
        return tf.maximum(tf.reduce_max(sizes_of_ranks, 0), sizes)


def _is_fixed(ragged: Any, shape: Any) -> bool:
    """Whether the rows of a ragged tensor, made dense with `shape`, have the same size in every batch."""
    try:
        fixed = tf.TensorShape(shape)
    except TypeError:  # a symbolic tensor, or a list with one
        return False
    sizes = [None] * ragged.shape.rank if fixed.rank is None else fixed.as_list()
    return all(size is not None or own is not None for size, own in zip(sizes[1:], ragged.shape.as_list()[1:]))


def _is_in_loop(step: Any) -> bool:
    """Whether what is traced is the body of a loop within the graph of a step."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None and graph is not step:
        if isinstance(graph, (control_flow.WhileBodyFuncGraph, control_flow.WhileCondFuncGraph)):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False
