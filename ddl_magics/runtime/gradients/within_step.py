"""Exchanges between the ranks in the middle of a step, before its gradients: sums, and the rows of all ranks.

All ranks make them in the same order, in which the step was traced: TensorFlow runs the stateful operations of a graph
in that order. The exchange of gradients is traced after all of these, so no bucket of gradients is under way meanwhile.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from ..collectives.announcement import WITHIN_STEP, Announcement, Diverged
from ..keras_types import Tensor
from ..rank.peers import Peers
from ..rank.rank import HookErrors
from .batch import LocalShare, Share
from .packed_arrays import pack, unpack
from .traced_step import TracedStep

#: More than this of one rank is refused rather than held in memory n times.
MAX_GATHERED_BYTES = 1 << 30
_OTHER_DATA = (
    "a tf.function has a loss that is a sum over rows, and is used in two loops over ddl.distribute: of data that the "
    "workers share, and of --data; write one for each loop"
)


class Gathered(NamedTuple):
    """tensors: the rows of all ranks, in order of rank. begins: where this rank's begin in each, scalars of int64.

    factor: the rows of all ranks over this rank's, as their shares of the batch count them, a float64 scalar; 0 on a
    rank without rows.
    """

    tensors: list[Tensor]
    begins: list[Tensor]
    factor: Tensor


@dataclass
class OmittedExchanges:
    occurred: bool = False


class WithinStep:
    """The exchanges of a rank's steps."""

    def __init__(self, peers: Peers, errors: HookErrors, traced: TracedStep) -> None:
        self._peers, self._errors, self._traced = peers, errors, traced
        self._share: Share | None = None  # of the step that is being traced
        self._count = 0  # of the sums that it has had
        self._omitted: OmittedExchanges | None = None  # while a step is traced without exchanges

    def number(self) -> int:
        """The number of the next sum in the step that is being traced; 0 outside of `fit`, where ranks are equal."""
        share = self._traced.share
        if share is not self._share:
            self._share, self._count = share, 0
        number = self._count
        self._count += share is not None
        return number

    def total(self, values: Tensor, number: int, order: int = 0) -> Tensor:
        """The sum of `values` over the ranks. It has no gradient.

        The caller replaces what a rank without rows computes by zeros. The step raises `Diverged` if ranks are at
        different sums.

        Args:
            values: A tensor of fixed shape.
            order: Of the derivative that the sum belongs to.

        Returns:
            A tensor of the same shape and dtype.
        """
        if self.alone():
            return values
        peers = self._peers

        def exchange(array: np.ndarray) -> np.ndarray:
            flat, ring = array.flatten(), peers.collective
            announcement = peers.announcement(WITHIN_STEP, check=number, scale=order)
            announced = peers.within(lambda: ring.allreduce(flat, announcement))
            peers.timings.add(ring.elapsed, ring.timings)
            self._check(announced)
            return flat.reshape(array.shape)

        summed = tf.numpy_function(self._errors.guarded(exchange), [values], values.dtype)
        summed.set_shape(values.shape)
        return summed

    def rows_over_own(self) -> Tensor:
        """The rows of the global batch over this rank's, at least 1 of them; a float64 scalar."""
        share = self._traced.share
        if self._traced.factor is not None:
            return tf.constant(self._traced.factor, tf.float64)
        if share is None:
            return tf.constant(float(self._peers.size), tf.float64)
        rows = tf.cast(share.rows, tf.float64)
        total = tf.cast(share.total, tf.float64)
        if isinstance(share, LocalShare):
            total = self.total(rows, self.number())
        elif isinstance(share.total, tf.Variable):  # of a loop
            tf.debugging.assert_non_negative(share.total, _OTHER_DATA)
        return total / tf.maximum(rows, 1.0)

    def gather(self, tensors: Sequence[Tensor], report: Callable[[int], None] = lambda size: None) -> Gathered:
        """The rows of all ranks of each of `tensors`. They have no gradient.

        A rank that has no row of the batch sends none. The step raises ValueError if ranks differ in other axes than
        the first, and for strings.

        Args:
            tensors: Of shape (rows, ...).
            report: Called with the size in bytes.
        """
        share, number = self._traced.share, self.number()
        if self.alone():
            zeros = [tf.constant(0, tf.int64)] * len(tensors)
            return Gathered(list(tensors), zeros, tf.constant(1.0, tf.float64))
        peers = self._peers
        rows = tf.constant(1, tf.int64) if share is None else share.rows
        local_rows = [tensor[: tf.where(rows > 0, tf.shape(tensor)[0], 0)] for tensor in tensors]

        def exchange(rows: np.ndarray, *arrays: np.ndarray) -> list[Any]:
            ring = peers.collective
            announcement = peers.announcement(WITHIN_STEP, float(rows), check=number)
            payloads, announced = peers.within(
                lambda: ring.gather_with_announcements(pack(arrays), announcement, MAX_GATHERED_BYTES)
            )
            peers.timings.add(ring.elapsed, ring.timings)
            self._check(announced)
            report(sum(len(payload) for payload in payloads))
            of_ranks = [unpack(payload, arrays) for payload in payloads]
            gathered_tensors = [np.concatenate(arrays_of_ranks) for arrays_of_ranks in zip(*of_ranks)]
            begins = [sum(map(len, arrays_of_ranks[: ring.rank])) for arrays_of_ranks in zip(*of_ranks)]
            total = sum(announcement.weight for announcement in announced)
            factor = np.float64(total / rows if rows else 0.0)
            return [*gathered_tensors, *(np.int64(begin) for begin in begins), factor]

        dtypes = [tensor.dtype for tensor in tensors] + [tf.int64] * len(tensors) + [tf.float64]
        *answers, factor = tf.numpy_function(self._errors.guarded(exchange), [rows, *local_rows], dtypes)
        gathered_tensors, begins = answers[: len(tensors)], answers[len(tensors) :]
        for gathered, tensor in zip(gathered_tensors, tensors):
            gathered.set_shape([None, *tensor.shape[1:]])
        for scalar in [*begins, factor]:
            scalar.set_shape([])
        return Gathered(gathered_tensors, begins, factor)

    def alone(self) -> bool:
        """Whether nothing is exchanged: this rank has the whole batch, or XLA is to compile the step."""
        if self._omitted is not None:
            self._omitted.occurred = True
            return True
        return self._traced.alone

    @contextlib.contextmanager
    def omitted(self) -> Iterator[OmittedExchanges]:
        """Trace what follows without exchanges, which XLA cannot compile. Yields whether it would have made any."""
        self._omitted = omitted = OmittedExchanges()
        try:
            yield omitted
        finally:
            self._omitted = None

    def _check(self, announced: list[Announcement]) -> None:
        """The ranks must be at the same sum: sizes alone do not tell layers apart."""
        chief, progress = announced[0], self._peers.progress
        for rank, announcement in enumerate(announced):
            if (announcement.check, announcement.scale) != (chief.check, chief.scale):
                message = "ranks 0 and %d compute step %d of epoch %d in different order"
                raise Diverged(rank, 0, message % (rank, progress.step + 1, progress.epoch + 1))
