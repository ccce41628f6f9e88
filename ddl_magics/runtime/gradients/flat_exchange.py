"""The exchange of gradients that lie on a GPU: they leave it once and come back once, as a flat buffer of each dtype.

Copies of many arrays take longer than one of all; a GPU copies to and from the memory of a result of NumPy slowly, but
not where that is the memory in which TensorFlow has passed an argument: so the sum is made there. All else is done on
the GPU, and XLA can compile it (step.py): weighing the gradients, looking for NaN, and cutting the sum.

The buffers are those of `GradientExchange`, in case another rank of the host has no GPU.
"""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from ..keras_types import Gradient, Tensor, Variable
from .batch import LocalShare, Share
from .exchange import GradientExchange, answers, cuts, gaps_behind, is_sparse

#: Whether gradients are exchanged in this way. None: if one of the variables that they are of is on a GPU.
ALWAYS: bool | None = None


def is_for(gradients: Sequence[Gradient], variables: Sequence[Variable], share: Share | None) -> bool:
    """Whether the gradients of `variables` are exchanged in this way.

    They are all dense and on a GPU, and it is known in the step how many rows all ranks have.
    """
    dense = [gradient for gradient in gradients if gradient is not None]
    return (
        bool(dense)
        and share is not None
        and not isinstance(share, LocalShare)
        and all(not is_sparse(gradient) and gradient.shape.is_fully_defined() for gradient in dense)
        and (ALWAYS if ALWAYS is not None else any(map(_is_on_gpu, variables)))
    )


def _is_on_gpu(variable: Variable) -> bool:
    return "GPU" in str(getattr(getattr(variable, "_value", variable), "device", ""))


class FlatGradients(Sequence[Gradient]):
    """Gradients as flat tensors, one for each dtype, which are cut where they are read."""

    def __init__(self, like: Sequence[Gradient], flats: Sequence[Tensor]) -> None:
        """like: Gradients of the same shapes and dtypes."""
        self._like, self.flats = like, list(flats)

    def cut(self, flats: Sequence[Tensor]) -> list[Gradient]:
        """The gradients in such `flats`, in their shapes; None where there was none."""
        result: list[Gradient] = [None] * len(self._like)
        for layout, flat in zip(_layouts(self._like), flats):
            parts = tf.split(flat, [place.size + place.gap for place in layout])
            for place, part in zip(layout, parts):
                result[place.number] = tf.reshape(part[: place.size], self._like[place.number].shape)
        return result

    def __len__(self) -> int:
        return len(self._like)

    def __iter__(self) -> Iterator[Gradient]:
        return iter(self.cut(self.flats))

    def __getitem__(self, index: Any) -> Any:
        return self.cut(self.flats)[index]


class FlatExchange(GradientExchange):
    """Sums the gradients of one optimizer over the ranks, for those that `is_for` says."""

    def __call__(self, gradients: Sequence[Gradient], share: Share | None) -> Sequence[Gradient]:
        """As in the base class."""
        assert share is not None, "is_for needs one"
        return self.summed(self.packed(gradients, share), gradients, share)

    def packed(self, gradients: Sequence[Gradient], share: Share) -> list[Tensor]:
        """What leaves the GPU: whether the gradients are finite, and they, by rows, flat. XLA can compile this.

        The arguments are those of `__call__`.
        """
        weight = tf.cast(share.rows, tf.float64) / tf.cast(tf.maximum(share.total, 1), tf.float64)
        flats = []
        for layout in _layouts(gradients):
            parts = [tf.pad(tf.reshape(gradients[place.number], [-1]), [[0, place.gap]]) for place in layout]
            flat = tf.concat(parts, 0)
            # No product alone: gradients may be NaN where there are no rows.
            flats.append(tf.where(share.rows > 0, flat * tf.cast(weight, flat.dtype), tf.zeros_like(flat)))
        if not self._check_finite:
            return [tf.constant(True), *flats]
        return [tf.reduce_all([tf.reduce_all(tf.math.is_finite(flat)) for flat in flats]), *flats]

    def summed(self, packed: Sequence[Tensor], like: Sequence[Gradient], share: Share) -> FlatGradients:
        """The gradients of the whole job, of what every rank has `packed`. It raises what `__call__` does.

        like: The gradients that were packed; only their shapes and dtypes matter.
        """
        finite, *flats = packed
        batch_tensors = self.batch_tensors(share)
        count = len(batch_tensors)

        def exchange(*arrays: np.ndarray) -> list[np.ndarray]:
            return self._sum_flats(arrays[:count], bool(arrays[count]), arrays[count + 1 :])

        inputs, dtypes = [*batch_tensors, finite, *flats], [flat.dtype for flat in flats]
        sums = answers(tf.numpy_function(self._errors.guarded(exchange), inputs, dtypes))
        for after, before in zip(sums, flats):
            after.set_shape(before.shape)
        return FlatGradients(like, sums)

    def _sum_flats(self, batch_values: Sequence[Any], finite: bool, flats: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums over ranks. They are made in the arrays themselves, which TensorFlow has made for this call."""
        peers, batch, sums = self._peers, self.batch(batch_values, finite=finite), []
        peers.progress.exchanges += 1
        for number, array in enumerate(flats):
            flat = array if array.flags.writeable else array.copy()
            for bounds in cuts(flat.size, flat.itemsize):  # as ranks without a GPU do
                announced = self.sum(number, flat[bounds], batch.announcement)
                self._count_time()
                self.settle(flat[bounds], announced, batch, dense=())  # its own are finite, or `announced` says it
            sums.append(flat)
        return sums


class _Place(NamedTuple):
    """Where a gradient lies in a flat tensor: behind those before it. number: its own; size: its elements.

    gap: elements of nothing behind them.
    """

    number: int
    size: int
    gap: int


def _layouts(gradients: Sequence[Gradient]) -> list[list[_Place]]:
    """Where the gradients lie, for each dtype: as the `Layout`s of `GradientExchange` have it."""
    dense = [number for number, gradient in enumerate(gradients) if gradient is not None]
    layouts = []
    for dtype in sorted({gradients[number].dtype for number in dense}, key=lambda dtype: str(dtype.name)):
        numbers = [number for number in dense if gradients[number].dtype == dtype]
        sizes = [int(gradients[number].shape.num_elements()) for number in numbers]
        layouts.append([_Place(*place) for place in zip(numbers, sizes, gaps_behind(sizes, dtype.size))])
    return layouts
