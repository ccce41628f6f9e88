"""The exchange of gradients between hosts: in buckets, while the backward pass goes on, and compressed if asked for.

TensorFlow calls the Python of a graph in the order in which the graph was made, and each call as soon as its tensors
are there, provided that another thread than the one that computes can: with a single inter-op thread all calls come
when the backward pass is over (worker.py sees to two). Measured with 16 dense layers on two cores: the first of six
buckets is there after 12 % of the backward pass, the last at its end.

On one host a single buffer is faster: nothing is won by an early begin where computing and copying share the cores.
"""

import functools

import numpy as np

from . import compression
from .buckets import Buckets, plan
from .buffers import Buffers
from .gradients import GradientExchange, Layout, is_sparse


def exchange(context, check_finite):
    """What sums the gradients of an optimizer over the ranks of `context`."""
    asked = context.config.get("compression")
    if not context.ring.crosses_network:
        if asked and context.is_chief:
            message = "--compression %s is left out: it saves bytes on a network, and all workers are on one machine"
            context.emit("notice", level="info", message=message % asked)
        context.config["compression"] = None  # said once
        return GradientExchange(context, check_finite)
    return OverlappedExchange(context, check_finite, compression.read(asked) if asked else None)


class OverlappedExchange(GradientExchange):
    """Sums dense gradients in buckets beside the backward pass. With sparse ones among them, all come after it."""

    def __init__(self, context, check_finite, compressed=None):
        super().__init__(context, check_finite)
        self._compressed, self._residuals = compressed, {}
        self._beside, self._kept = Buckets(context.ring), []
        self._under_way = []  # (flat buffer, its layout, its arrays), by bucket

    def __call__(self, gradients, share, sums):
        import tensorflow as tf

        dense = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if not dense or any(is_sparse(gradients[i]) for i in dense):
            return super().__call__(gradients, share, sums)
        told = self.told(share)
        result, tokens, order = list(gradients), [], []
        for number, bucket in enumerate(_buckets(gradients, dense)):
            submit = self._context.guarded(functools.partial(self._submit, number, sums, len(told)))
            tokens.append(tf.numpy_function(submit, told + [gradients[i] for i in bucket], tf.float32))
            order += bucket
        finish = self._context.guarded(self._finish)
        reduced = tf.numpy_function(finish, tokens, [gradients[i].dtype for i in order])
        for i, after in zip(order, reduced):
            after.set_shape(gradients[i].shape)
            result[i] = after
        return result

    def _submit(self, number, sums, count, *arrays):
        """The gradients of a bucket are there, after `count` arrays of what is told of the batch."""
        told, arrays = arrays[:count], arrays[count:]
        if number == 0:
            self._under_way = []
            self._batch = self.batch(told, sums)
        if number == len(self._kept):
            self._kept.append(_Kept(Layout(arrays[0].dtype, arrays)))
        kept = self._kept[number]
        flat = kept.buffers.take(kept.layout.dtype, kept.layout.size)
        kept.layout.fill(flat, arrays, self._batch.weight)
        self._under_way.append((flat, kept.layout, arrays))
        self._beside.submit(functools.partial(self.sum, number, flat, self._batch.part))
        return np.float32(0)

    def _finish(self, *_):
        """The gradients of all buckets, summed over the ranks."""
        context, beside = self._context, self._beside
        context.exchanges += 1
        told = beside.wait()
        context.waited += beside.waited
        context.copied += beside.spent.copy
        context.wired += beside.spent.wire
        under_way, self._under_way = self._under_way, []
        result = []
        for (flat, layout, arrays), parts in zip(under_way, told):
            self.settle(flat, parts, self._batch, arrays)
            reduced = [None] * len(arrays)
            layout.scatter(flat, arrays, reduced)
            result += reduced
        return result

    def sum(self, number, flat, mine):
        ring, how = self._context.ring, self._compressed
        if how is None or flat.dtype != np.float32:
            return super().sum(number, flat, mine)
        if number not in self._residuals:
            self._residuals[number] = np.zeros_like(flat)
        residual = self._residuals[number]
        if how.name == compression.TOPK:
            return compression.topk_allreduce(ring, flat, mine, residual, how.share)
        return ring.allreduce(flat, mine, residual)


class _Kept:
    """What a bucket has from step to step."""

    def __init__(self, layout):
        self.layout, self.buffers = layout, Buffers()


def _buckets(gradients, dense):
    """Numbers of gradients, by bucket: of one dtype, in the order in which a backward pass makes them."""
    found = []
    for dtype in sorted({gradients[i].dtype for i in dense}, key=str):
        ordered = [i for i in reversed(dense) if gradients[i].dtype == dtype]
        sizes = [(gradients[i].shape.num_elements() or 0) * dtype.size for i in ordered]
        found += [[ordered[place] for place in bucket] for bucket in plan(sizes)]
    return found
