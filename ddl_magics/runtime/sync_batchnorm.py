"""BatchNormalization whose statistics are those of the whole global batch: what its layers exchange within a step.

Of its own rows a layer knows for each channel how many values there are, their sum and the sum of their squares. Summed
over the ranks they make the mean and the variance that one process has of all rows. Their gradients are summed as well,
as every rank's loss depends on them: one exchange on the way forward and one on the way back, of three numbers a
channel.

Exchanges come in the order in which a step was traced, on all ranks the same: TensorFlow runs stateful operations of a
graph in that order, those which exchange gradients among them, which are traced behind all of these. So no bucket of
gradients is under way while a layer exchanges.
"""

import tensorflow as tf

from . import reduce
from .parts import NORMALIZATION, Diverged

_SLICES = (
    "BatchNormalization takes its statistics from each worker's part of a batch; --sync-batchnorm takes them from the "
    "whole batch"
)
_NO_BATCH = (
    "BatchNormalization(synchronized=True) changes nothing here: workers of --strategy %s%s take steps of their own, "
    "and there is no whole batch"
)
_NO_XLA = "the training step is not compiled by XLA: its BatchNormalization exchanges statistics over the workers"


class SyncBatchNorm:
    """What layers of the class `kind` do in the ranks of a run. hooks: the `keras_fit.KerasHooks`."""

    def __init__(self, hooks, kind):
        self._hooks, self._context, self._kind = hooks, hooks.context, kind
        self._share, self._count = None, 0  # the step in work, and how often a layer was called in it
        self._told = set()

    def synchronizes(self, layer):
        """Whether the statistics of `layer` are those of all ranks' rows."""
        return self._context.reduces and isinstance(layer, self._kind) and self._asked(layer)

    def _asked(self, layer):
        return layer.synchronized or bool(self._context.config.get("sync_batchnorm"))

    def keeps_xla(self, model):
        """Whether XLA, which knows no exchange, can compile a training step of `model`. Says so where it cannot."""
        if not any(self.synchronizes(layer) for layer in self._trained(model)):
            return True
        self._tell("info", _NO_XLA)
        return False

    def begin_fit(self, model):
        """Say once what a reader of the model would not expect of its statistics."""
        context = self._context
        if context.size == 1:
            return
        layers = self._trained(model)
        if context.reduces and not all(self._asked(layer) for layer in layers):
            self._tell("info", _SLICES)
        if not context.reduces and any(layer.synchronized for layer in layers):
            rule = " --rule " + context.config["rule"] if context.strategy == "allreduce" else ""
            self._tell("warning", _NO_BATCH % (context.strategy, rule))

    def _trained(self, model):
        return [layer for layer in model._flatten_layers() if isinstance(layer, self._kind) and layer.trainable]

    def _tell(self, level, message):
        if self._context.is_chief and message not in self._told:
            self._context.emit("notice", level=level, message=message)
        self._told.add(message)

    def moments(self, x, axes, mask=None, slack=0.0):
        """`moments` over all ranks' rows. Called while a step is traced; outside of `fit` ranks count alike."""
        if self._hooks.put_aside is not None:
            raise ValueError(
                "BatchNormalization with synchronized statistics cannot be compiled by XLA: compile the model with "
                "jit_compile=False, or make the layer in the constructor of the model"
            )
        context = self._context
        share = context.share
        if share is not self._share:
            self._share, self._count = share, 0
        number = self._count
        self._count += share is not None

        def total(values):
            if share is not None:  # what is computed of no rows is one row that does not count
                values = tf.where(share.rows > 0, values, tf.zeros_like(values))
            return self._total(values, share, number, order=0)

        return moments(x, axes, total, mask, slack)

    def _total(self, values, share, number, order):
        """The sum of `values` over the ranks, for the layer's call `number` in a step; order: of the derivative.

        The loss of the job is the mean of the ranks' losses, weighted by what each one's gradients will be weighted by
        (gradients.py): its gradient by one rank's values is the weighted sum of all ranks' gradients by the total. The
        weight is taken out again here, as it is still to come.
        """

        @tf.custom_gradient
        def total(values):
            def gradient(upstream):
                weight = self._weight(share)
                weighted = tf.where(weight > 0, upstream * weight, tf.zeros_like(upstream))
                return tf.math.divide_no_nan(self._total(weighted, share, number, order + 1), weight)

            return self._exchange(values, number, order), gradient

        return total(values)

    def _weight(self, share):
        """What this rank's gradients weigh beside the others'; known when the losses are, after the layer's call."""
        if share is None:
            return tf.constant(1.0, tf.float64)
        rows = tf.cast(share.rows, tf.float64)
        return tf.minimum(rows, 1.0) if self._context.loss_sums else rows

    def _exchange(self, values, number, order):
        context = self._context

        def exchange(array):
            flat = array.flatten()
            parts = context.ring.allreduce(flat, reduce.part(context, NORMALIZATION, check=number, scale=order))
            context.note_collective()
            _check(context, parts)
            return flat.reshape(array.shape)

        summed = tf.numpy_function(context.guarded(exchange), [values], values.dtype)
        summed.set_shape(values.shape)
        return summed


def moments(x, axes, total, mask=None, slack=0.0):
    """(mean, variance) of `x` over `axes`, one for each channel, of its dtype; without Bessel's correction, as Keras'.

    total: sums a float64 tensor of shape (3, channels) over those who take part. mask: of the shape of x without its
    last axis; what is False does not count. slack: added to the number of values that the sums are divided by.
    """
    # With squares about zero, in float64: from 32 bits on there is nothing that the subtraction below could cancel.
    count, mean, variance = (tf.cast(each, tf.float64) for each in _own(x, axes, mask))
    count, values, squares = tf.unstack(total(tf.stack([count, count * mean, count * (variance + tf.square(mean))])))
    mean = values / (count + slack)
    variance = (squares - 2 * mean * values + count * tf.square(mean)) / (count + slack)
    return tf.cast(mean, x.dtype), tf.cast(tf.maximum(variance, 0.0), x.dtype)


def _own(x, axes, mask):
    """(number of values, mean, variance) of one rank, for each channel; zeros where there is no value."""
    if mask is None:
        mean, variance = tf.nn.moments(x, axes)
        return tf.fill(tf.shape(mean), tf.size(x, tf.int64) // tf.size(mean, tf.int64)), mean, variance
    kept = tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(x))
    count = tf.reduce_sum(tf.cast(kept, x.dtype), axes, keepdims=True)
    divisor = tf.maximum(count, 1)
    mean = tf.reduce_sum(tf.where(kept, x, 0), axes, keepdims=True) / divisor
    variance = tf.reduce_sum(tf.square(tf.where(kept, x - mean, 0)), axes, keepdims=True) / divisor
    return tuple(tf.squeeze(each, axes) for each in (count, mean, variance))


def _check(context, parts):
    """The ranks must be in the same call of the same layer: sizes alone do not tell layers apart."""
    first = parts[0]
    for rank, each in enumerate(parts):
        if (each.check, each.scale) != (first.check, first.scale):
            message = "ranks 0 and %d call the BatchNormalization layers of step %d of epoch %d in different order"
            raise Diverged(rank, 0, message % (rank, context.step + 1, context.epoch + 1))
