"""Sums over the ranks in the middle of a step, before its gradients.

They are made in the order in which the step was traced, on all ranks the same: TensorFlow runs stateful operations of a
graph in that order, those which exchange gradients among them, which are traced behind all of these. So no bucket of
gradients is under way meanwhile.
"""

import tensorflow as tf

from . import reduce
from .parts import WITHIN_STEP, Diverged


class WithinStep:
    """The sums of a rank's steps. hooks: the `keras_fit.KerasHooks`."""

    def __init__(self, hooks):
        self._hooks, self._context = hooks, hooks.context
        self._share, self._count = None, 0  # the step in work, and how many sums it has had
        self.left_out = False  # a sum was, while a step was traced for XLA, which knows no exchange

    def number(self):
        """Of the next sum in the step that is being traced; outside of `fit` ranks count alike, and it is 0."""
        share = self._context.share
        if share is not self._share:
            self._share, self._count = share, 0
        number = self._count
        self._count += share is not None
        return number

    def total(self, values, number, order=0):
        """The sum of `values`, a tensor of fixed shape, over the ranks; order: of the derivative that it belongs to.

        It has no gradient of its own. What counts for nothing on a rank without rows is the caller's to leave out.
        """
        context = self._context
        if self._hooks.put_aside is not None:
            self.left_out = True
            return values

        def exchange(array):
            flat = array.flatten()
            parts = context.ring.allreduce(flat, reduce.part(context, WITHIN_STEP, check=number, scale=order))
            context.note_collective()
            _check(context, parts)
            return flat.reshape(array.shape)

        summed = tf.numpy_function(context.guarded(exchange), [values], values.dtype)
        summed.set_shape(values.shape)
        return summed


def _check(context, parts):
    """The ranks must be at the same sum: sizes alone do not tell layers apart."""
    first = parts[0]
    for rank, each in enumerate(parts):
        if (each.check, each.scale) != (first.check, first.scale):
            message = "ranks 0 and %d compute step %d of epoch %d in different order"
            raise Diverged(rank, 0, message % (rank, context.step + 1, context.epoch + 1))
