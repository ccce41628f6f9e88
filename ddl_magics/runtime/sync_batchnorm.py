"""BatchNormalization whose statistics are those of the whole global batch: what its layers exchange within a step.

Of its own rows a layer knows for each channel how many values there are, their sum and the sum of their squares. Summed
over the ranks they make the mean and the variance that one process has of all rows. Their gradients are summed as well,
as every rank's loss depends on them: one exchange on the way forward and one on the way back, of three numbers a
channel.
"""

import tensorflow as tf

_SLICES = (
    "BatchNormalization takes its statistics from each worker's part of a batch; --sync-batchnorm takes them from the "
    "whole batch"
)
_NO_BATCH = (
    "BatchNormalization(synchronized=True) changes nothing here: workers of --strategy %s%s take steps of their own, "
    "and there is no whole batch"
)


class SyncBatchNorm:
    """What layers of the class `kind` do in a rank. context: its `rank.Rank`; within: its `within_step.WithinStep`."""

    def __init__(self, context, within, kind):
        self._context, self._within, self._kind = context, within, kind

    def synchronizes(self, layer):
        """Whether the statistics of `layer` are those of all ranks' rows."""
        return self._context.reduces and isinstance(layer, self._kind) and self._asked(layer)

    def _asked(self, layer):
        return layer.synchronized or bool(self._context.config.get("sync_batchnorm"))

    def begin_fit(self, model):
        """Say once what a reader of the model would not expect of its statistics."""
        context = self._context
        if context.size == 1:
            return
        layers = self._trained(model)
        if context.reduces and not all(self._asked(layer) for layer in layers):
            context.tell_once("info", _SLICES)
        if not context.reduces and any(layer.synchronized for layer in layers):
            rule = " --rule " + context.config["rule"] if context.strategy == "allreduce" else ""
            context.tell_once("warning", _NO_BATCH % (context.strategy, rule))

    def _trained(self, model):
        return [layer for layer in model._flatten_layers() if isinstance(layer, self._kind) and layer.trainable]

    def moments(self, x, axes, mask=None, slack=0.0):
        """`moments` over all ranks' rows. Called while a step is traced; outside of `fit` ranks count alike."""
        share, number = self._context.share, self._within.number()

        def total(values):
            if share is not None:  # what is computed of no rows is one row that does not count
                values = tf.where(share.rows > 0, values, tf.zeros_like(values))
            return self._total(values, share, number, order=0)

        return moments(x, axes, total, mask, slack)

    def _total(self, values, share, number, order):
        """The sum of `values` over the ranks, for exchange `number` of a step; order: of the derivative.

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

            return self._within.total(values, number, order), gradient

        return total(values)

    def _weight(self, share):
        """What this rank's gradients weigh beside the others'; known when the losses are, after the layer's call."""
        if share is None:
            return tf.constant(1.0, tf.float64)
        rows = tf.cast(share.rows, tf.float64)
        return tf.minimum(rows, 1.0) if self._context.loss_sums else rows


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
