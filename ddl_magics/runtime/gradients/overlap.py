"""The exchange of gradients between hosts: in buckets, during the backward pass, and compressed if asked for.

TensorFlow calls the Python functions of a graph in the order in which the graph was made, each as soon as its tensors
are there, provided that a thread is free: with a single inter-op thread all calls come after the backward pass
(worker.py gives it two). Measured with 16 dense layers on two cores: the first of six buckets is there after 12 % of
the backward pass, the last at its end.

On one host a single buffer is faster: an early start wins nothing where computing and copying share the cores.
"""

from __future__ import annotations

import functools
from typing import Any, Sequence

import numpy as np
import tensorflow as tf

from ..collectives import compression
from ..collectives.announcement import Announcement
from ..collectives.buckets import Buckets, plan
from ..collectives.compression import Compression
from ..keras_types import Gradient, Variable
from ..rank.rank import Rank
from ..transport.buffers import Buffers
from .batch import Share
from .exchange import GradientExchange, Layout, WeightedBatch, answers, is_sparse
from .flat_exchange import FlatExchange, is_for


def exchange(
    rank: Rank,
    check_finite: bool,
    gradients: Sequence[Gradient],
    variables: Sequence[Variable],
    share: Share | None,
) -> GradientExchange:
    """What sums the gradients of an optimizer over the ranks: with buckets and compression where there is a network.

    gradients, variables: of the optimizer, to see where they are. share: the `Share` of the step, or None.
    """
    compression_spec = rank.config.compression
    if rank.peers.collective.crosses_network:
        return OverlappedExchange(rank, check_finite, compression_spec)
    if compression_spec is not None:
        message = "--compression %s is left out: it saves bytes on a network, and all workers are on one machine"
        rank.reporter.notice_once("info", message % compression_spec.text)
    kind = FlatExchange if is_for(gradients, variables, share) else GradientExchange
    return kind(rank.peers, rank.errors, check_finite)


#: A bucket's answer to TensorFlow, for the exchange of all buckets to depend on.
_SUBMITTED = np.zeros((), np.float32)


class OverlappedExchange(GradientExchange):
    """Sums dense gradients in buckets during the backward pass. With sparse ones among them, all come after it."""

    def __init__(self, rank: Rank, check_finite: bool, compressed: Compression | None = None) -> None:
        super().__init__(rank.peers, rank.errors, check_finite)
        self._compressed = compressed
        self._residuals: dict[int, np.ndarray] = {}
        self._buckets = Buckets(rank.peers.collective)
        self._reused: list[tuple[Layout, Buffers]] = []  # by bucket, from step to step
        self._in_flight: list[tuple[np.ndarray, Layout, Sequence[np.ndarray]]] = []  # by bucket: buffer, layout, arrays
        self._batch: WeightedBatch | None = None  # of the step

    def __call__(self, gradients: Sequence[Gradient], share: Share | None) -> Sequence[Gradient]:
        dense = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if not dense or any(is_sparse(gradients[i]) for i in dense):
            return super().__call__(gradients, share)
        batch_tensors = self.batch_tensors(share)
        result, tokens, order = list(gradients), [], []
        for number, bucket in enumerate(_buckets(gradients, dense)):
            submit = self._errors.guarded(functools.partial(self._submit, number, len(batch_tensors)))
            tokens.append(tf.numpy_function(submit, batch_tensors + [gradients[i] for i in bucket], tf.float32))
            order += bucket
        finish = self._errors.guarded(self._finish)
        reduced = answers(tf.numpy_function(finish, tokens, [gradients[i].dtype for i in order]))
        for i, after in zip(order, reduced):
            after.set_shape(gradients[i].shape)
            result[i] = after
        return result

    def _submit(self, number: int, count: int, *arrays: np.ndarray) -> np.ndarray:
        """Begin the sum of a bucket's gradients. The first `count` arrays are the values of `batch_tensors`."""
        batch_values, arrays = arrays[:count], arrays[count:]
        if number == 0:
            self._in_flight = []
            self._batch = self.batch(batch_values)
        assert self._batch is not None
        if number == len(self._reused):
            self._reused.append((Layout(arrays[0].dtype, arrays), Buffers()))
        layout, buffers = self._reused[number]
        flat = buffers.take(layout.dtype, layout.size)
        layout.single_section.fill(flat, arrays, self._batch.weight)
        self._in_flight.append((flat, layout, arrays))
        self._buckets.submit(functools.partial(self.sum, number, flat, self._batch.announcement))
        return _SUBMITTED

    def _finish(self, *_: Any) -> list[np.ndarray]:
        """The gradients of all buckets, summed over the ranks."""
        assert self._batch is not None
        peers = self._peers
        peers.progress.exchanges += 1
        announced = self._buckets.wait()
        peers.timings.add(self._buckets.waited, self._buckets.timings, self._buckets.hidden)
        in_flight, self._in_flight = self._in_flight, []
        result: list[np.ndarray] = []
        for (flat, layout, arrays), announcements in zip(in_flight, announced):
            self.settle(flat, announcements, self._batch, arrays)
            reduced: list[Any] = [None] * len(arrays)
            layout.single_section.scatter(flat, arrays, reduced)
            result += reduced
        return result

    def sum(self, number: int, flat: np.ndarray, announcement: Announcement) -> list[Announcement]:
        ring, method = self._peers.collective, self._compressed
        if method is None or flat.dtype != np.float32:
            return super().sum(number, flat, announcement)
        if number not in self._residuals:
            self._residuals[number] = np.zeros_like(flat)
        residual = self._residuals[number]
        if method.name == compression.TOPK:
            return compression.topk_allreduce(ring, flat, announcement, residual, method.share)
        return ring.allreduce(flat, announcement, residual)


def _buckets(gradients: Sequence[Gradient], dense: Sequence[int]) -> list[list[int]]:
    """Numbers of gradients, by bucket: of one dtype, in the order in which a backward pass makes them."""
    buckets = []
    for dtype in sorted({gradients[i].dtype for i in dense}, key=str):
        ordered = [i for i in reversed(dense) if gradients[i].dtype == dtype]
        sizes = [(gradients[i].shape.num_elements() or 0) * dtype.size for i in ordered]
        buckets += [[ordered[index] for index in bucket] for bucket in plan(sizes)]
    return buckets
