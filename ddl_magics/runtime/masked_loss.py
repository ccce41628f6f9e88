"""Losses that are a mean over the entries which a mask leaves: over those of the whole global batch.

Keras multiplies what is left by the number of all entries and divides it by the number of those left, and takes the
mean over all. Slices of a batch have different numbers of entries left, so both numbers are those of all ranks here;
means over slices, weighted by rows, then make the mean of the whole.
"""

import tensorflow as tf

MEANS = ("mean", "sum_over_batch_size", "auto")


def scale(within, share, mask):
    """What Keras multiplies an entry that is left by, a float64 scalar.

    within: the `within_step.WithinStep`; share: the `share.Share` in work.
    """
    entries = tf.stack([tf.cast(tf.size(mask), tf.float64), tf.reduce_sum(tf.cast(mask, tf.float64))])
    entries = tf.where(share.rows > 0, entries, tf.zeros_like(entries))
    count, left = tf.unstack(within.total(entries, within.number()))
    return tf.math.divide_no_nan(count, left)
