"""What Keras computes within a loop over `ddl.distribute`: on a rank's slice, as in a step of `fit`."""

from __future__ import annotations

import contextlib
import functools
from typing import Iterator, Sequence

import tensorflow as tf

from ..gradients.batch import LocalShare, Share
from ..gradients.exchange import is_sparse, scaled
from ..gradients.masked_loss import MEANS
from ..gradients.traced_step import TracedStep
from ..keras_types import Gradient, Tensor
from ..rank.rank import HookErrors
from .noise import Noise
from .own_loop import SUM, OwnLoop, TracedUpdate

#: Of so many gradients, so many values tell whether all ranks compute the same.
_SAMPLE_GRADIENTS, _SAMPLE_VALUES = 8, 64

_AMBIGUOUS = (
    "a loss of this loop has reduction='sum': write ddl.distribute(data, reduction='sum') if you differentiate a sum "
    "over rows, or reduction='mean' if you divide it by their number"
)
_TAKEN_FOR_A_MEAN = (
    "the loss that this loop differentiates is taken for a mean over the rows of a batch: write "
    "ddl.distribute(data, reduction='sum') if it is a sum, or reduction='mean' if it is one; rows that it looks at "
    "together are put together by ddl.all_gather(tensor)"
)


class LoopSlices:
    """The shares that a loop reads, for what is traced in it.

    A function that is traced for one batch is used for the next, too: so rows are variables there.
    """

    def __init__(self, loop: OwnLoop, traced: TracedStep, noise: Noise, errors: HookErrors) -> None:
        self._loop, self._traced, self._noise, self._errors = loop, traced, noise, errors
        self._rows = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._total = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._reduction: str | None = None
        self._summed = self._averaged = False  # by a loss of Keras, since the last update

    def read(self, reader: object, share: Share, reduction: str | None) -> None:
        self._loop.read(reader, share, reduction)
        self._rows.assign(share.rows)
        self._total.assign(share.total)
        self._reduction = reduction
        kind = LocalShare if isinstance(share, LocalShare) else Share
        self._traced.enter(kind(None, self._rows, self._total))
        self._traced.sums, self._traced.declared = reduction == SUM, reduction is not None
        self._noise.apart = True

    def end_reading(self, reader: object) -> None:
        self._loop.end_reading(reader)
        if not self._loop.distributes:
            self._traced.leave()
            self._noise.apart = False

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Around what Keras computes of other batches within the loop, as an evaluation does."""
        traced = self._traced
        reductions = {"sums": traced.sums, "declared": traced.declared, "as_sum": traced.as_sum}
        with traced.state(share=None, **reductions), self._noise.alike():
            yield

    def end_epoch(self) -> None:
        self._loop.end_epoch()

    def note_loss(self, reduction: str | None) -> None:
        """A loss of Keras is computed, and reduced like this."""
        self._summed = self._summed or (self._loop.distributes and reduction == SUM)
        self._averaged = self._averaged or reduction in MEANS

    def of_update(self, gradients: Sequence[Gradient]) -> tuple[list[Gradient], Share]:
        """(`gradients` as of a mean over the rows of a slice, the share that they belong to).

        ValueError where it is not known how their loss is reduced.
        """
        summed, averaged, as_sum = self._summed, self._averaged, self._traced.as_sum
        self._summed, self._averaged, self._traced.as_sum = False, False, None
        if self._reduction is None and self._loop.distributes:
            if summed:
                raise ValueError(_AMBIGUOUS)
            if not averaged:
                self._loop.notice("info", _TAKEN_FOR_A_MEAN)
        traced = TracedUpdate(self._loop.distributes, self._reduction == SUM and self._loop.distributes, as_sum)
        dense = [gradient for gradient in gradients if gradient is not None][:_SAMPLE_GRADIENTS]
        sample = tf.concat([tf.zeros([0], tf.float64), *map(_first_values, dense)], 0)
        update = self._errors.guarded(functools.partial(self._loop.update, traced))
        rows, total, check = tf.numpy_function(update, [sample], [tf.int64, tf.int64, tf.float64])
        rows.set_shape([])
        total.set_shape([])
        if traced.sums:
            share = tf.math.divide_no_nan(tf.cast(total, tf.float64), tf.cast(rows, tf.float64))
            factor = tf.where(total > 0, share, tf.ones_like(share))
            gradients = [scaled(gradient, factor) for gradient in gradients]
        return list(gradients), Share(None, rows, total, (check,))


def _first_values(gradient: Gradient) -> Tensor:
    values = gradient.values if is_sparse(gradient) else gradient
    return tf.cast(tf.reshape(values, [-1])[:_SAMPLE_VALUES], tf.float64)
