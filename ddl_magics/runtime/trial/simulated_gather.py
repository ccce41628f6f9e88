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

    used: a step has wanted rows of all ranks. sums: the step is tried as one whose losses are sums over rows.
    """

    def __init__(self) -> None:
        self.used = self.sums = False
        self._begins: Sequence[int] = ()
        self._begin, self._number, self._factor = 0, 0, 1.0
        self._of_parts: dict[tuple[int, int], list[np.ndarray]] = {}

    def cut(self, begins: Sequence[int]) -> None:
        """Parts that begin at these rows are tried next, each twice: the first needs the rows of the last."""
        self._begins, self._of_parts = begins, {}

    def next(self, begin: int, factor: float) -> None:
        """The step is run with the rows from `begin`. factor: all rows over these."""
        self._begin, self._number, self._factor = begin, 0, factor

    def rows(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The rows of all parts, as far as they are known, for `tensors` of the part in work."""
        self.used = True
        number, self._number = self._number, self._number + 1
        if self._factor == 1.0:  # all rows are in work
            return list(tensors)
        self._of_parts[self._begin, number] = [np.asarray(each) for each in tensors]
        every = [self._of_parts.get((begin, number)) for begin in self._begins]
        known = [part for part in every if part is not None]
        if len(known) < len(every):
            return list(tensors)
        return [self._joined(own, [part[i] for part in known]) for i, own in enumerate(tensors)]

    def _joined(self, own: Tensor, parts: Sequence[np.ndarray]) -> Tensor:
        mine = list(self._begins).index(self._begin)
        factor = 1.0 if self.sums else self._factor
        live = _scaled(own, factor) if own.dtype.is_floating else own
        return tf.concat([live if i == mine else tf.constant(part) for i, part in enumerate(parts)], 0)


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    """`tensor`, whose gradient is multiplied by `factor`."""

    @tf.custom_gradient
    def identity(own: Tensor) -> Any:
        return tf.identity(own), lambda upstream: upstream * tf.cast(factor, upstream.dtype)

    return identity(tensor)
