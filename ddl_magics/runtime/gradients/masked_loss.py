"""Masked losses: a mean over the entries that the mask keeps in the whole global batch.

Keras multiplies each entry that is kept by (number of all entries / number of kept entries), and takes the mean over
all. Slices of a batch keep different numbers of entries, so both numbers are those of all ranks here; the means over
slices, weighted by rows, then make the mean of the whole.
"""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

from ..keras_types import Tensor
from .batch import Share
from .traced_step import TracedStep
from .within_step import WithinStep

#: Keras' names of reductions to a mean.
MEANS = ("mean", "sum_over_batch_size", "auto")


def masked(
    traced: TracedStep, within: WithinStep, weigh: Callable[[str], Tensor], mask: Tensor | None, reduction: str
) -> Tensor:
    """The weights of a loss by its `mask`: `weigh(reduction)`, scaled for a mean over the whole batch."""
    share = traced.share
    if mask is None or reduction not in MEANS:
        return weigh(reduction)
    if traced.trial:  # without the division by the number of kept entries: the trial sees the sum over slices
        return weigh("sum")
    if share is None or traced.alone:
        return weigh(reduction)
    weights = weigh("sum")
    return weights * tf.cast(_scale(within, share, mask), weights.dtype)


def _scale(within: WithinStep, share: Share, mask: Tensor) -> Tensor:
    """The factor of an entry that is kept, a float64 scalar. mask: bool or numbers, of any shape."""
    entries = tf.stack([tf.cast(tf.size(mask), tf.float64), tf.reduce_sum(tf.cast(mask, tf.float64))])
    entries = tf.where(share.rows > 0, entries, tf.zeros_like(entries))
    count, kept_entries = tf.unstack(within.total(entries, within.number()))
    return tf.math.divide_no_nan(count, kept_entries)
