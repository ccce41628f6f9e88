"""The rows of all ranks, while a step is tried: those that the step has for the parts of a cut, put together.

A step may do with a loss of all rows whatever it likes: multiply it by a term of its own rows, for example, whose
product no workers can put together. The trial finds that out if the parts compute that loss as ranks do: of the rows of
all parts, with the gradient through a part's own rows alone.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import tensorflow as tf

from ..keras_types import Tensor


class SimulatedGather:
    """Rows by part, and by number of the loss in the step.

    is_used: a step has wanted rows of all ranks. sums: the step is tried as one whose losses are sums over rows.
    """

    def __init__(self) -> None:
        self.is_used = self.sums = False
        self._begins: Sequence[int] = ()
        self._begin, self._number, self._factor = 0, 0, 1.0
        self._of_parts: dict[tuple[int, int], list[np.ndarray]] = {}
        self._lengths: list[Tensor] = []  # of the newest run with all rows
        self._length = 0

    def cut(self, begins: Sequence[int]) -> None:
        """Parts that begin at these rows are tried next, each twice: the first needs the rows of the last."""
        self._begins, self._of_parts = begins, {}

    def begin_call(self, begin: int, factor: float) -> None:
        """The step is run with the rows from `begin`. factor: all rows over these."""
        self._begin, self._number, self._factor, self._length = begin, 0, factor, 0
        if factor == 1.0:
            self._lengths = []

    def rows(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The rows of all parts, as far as they are known, for `tensors` of the part in work."""
        self.is_used = True
        number, self._number = self._number, self._number + 1
        if self._factor == 1.0:  # all rows are in work
            return list(tensors)
        self._of_parts[self._begin, number] = [np.asarray(tensor) for tensor in tensors]
        every = [self._of_parts.get((begin, number)) for begin in self._begins]
        slices = [slice_rows for slice_rows in every if slice_rows is not None]
        if len(slices) < len(every):
            return list(tensors)
        return [self._joined(local, [slice_rows[i] for slice_rows in slices]) for i, local in enumerate(tensors)]

    def longest(self, lengths: Tensor) -> Tensor:
        """The largest `lengths` of all rows at this place of the step, as the run with all rows has seen them."""
        if self._factor == 1.0:
            self._lengths.append(lengths)
        number, self._length = self._length, self._length + 1
        return tf.maximum(lengths, self._lengths[number]) if number < len(self._lengths) else lengths

    def _joined(self, local: Tensor, slices: Sequence[np.ndarray]) -> Tensor:
        index = list(self._begins).index(self._begin)
        factor = 1.0 if self.sums else self._factor
        live = _scaled(local, factor) if local.dtype.is_floating else local
        return tf.concat([live if i == index else tf.constant(rows) for i, rows in enumerate(slices)], 0)


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    """`tensor`, whose gradient is multiplied by `factor`."""

    @tf.custom_gradient
    def identity(values: Tensor) -> Any:
        return tf.identity(values), lambda upstream: upstream * tf.cast(factor, upstream.dtype)

    return identity(tensor)
