"""The exchange of a sharded update: each rank gets the sum of its part of the gradients, and of all variables the rest.

The same bytes travel as for the sum of all gradients on all ranks: a reduce-scatter of gradients before the update, and
an all-gather of variables after it. sharding.py says whose part is which.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from ..collectives.announcement import STEP, WEIGHTS
from ..keras_types import Gradient, Tensor
from ..rank.peers import Peers
from ..rank.rank import HookErrors
from ..stopping import NOT_FINITE
from .batch import Share
from .exchange import GradientExchange, WeightedBatch, answers, is_finite
from .sharding import Segment, Shard, Spec, segments

#: An output beside those that a rank may not have, as it takes part in the exchange of a step in any case.
_IN_ANY_CASE = np.zeros((), np.float32)


class Clipping(NamedTuple):
    """An optimizer's bounds of norms, of which it has one at most."""

    clipnorm: float | None  # of each variable
    global_clipnorm: float | None  # of all together

    def factors(self, squares: np.ndarray) -> np.ndarray:
        """What gradients are multiplied with. squares: float64, the squared norm of each variable's; same shape."""
        with np.errstate(all="ignore"):  # of gradients that are zero, or not finite
            if self.clipnorm:
                return np.asarray(self.clipnorm / np.maximum(np.sqrt(squares), self.clipnorm))
            norm = np.sqrt(squares.sum())
            assert self.global_clipnorm, "there is no norm to bound"
            return np.full_like(squares, self.global_clipnorm * min(1 / norm, 1 / self.global_clipnorm) + (norm - norm))


class ShardedExchange(GradientExchange):
    """Exchanges for one optimizer, whose variables all have dense gradients, or none. steps: so many were exchanged."""

    def __init__(
        self,
        peers: Peers,
        errors: HookErrors,
        check_finite: bool,
        specs: Sequence[Spec],
        shards: Sequence[Shard],
        clipping: Clipping | None = None,
    ) -> None:
        super().__init__(peers, errors, check_finite)
        self._specs, self._shards, self._clipping = specs, shards, clipping
        self._segments = segments(shards)
        self.steps = 0
        self._is_sum_finite = True
        self._flats: list[np.ndarray] = []  # of the shards, from an exchange of gradients to that of variables

    def segments(self, gradients: Sequence[Gradient], share: Share | None) -> dict[Segment, Tensor]:
        """The sums of this rank's parts of the gradients, of shape (stop - begin,), or the variable's if it is whole.

        The arguments are those of `__call__`, gradients in the order of the variables. What has no gradient is left
        out. It raises what `__call__` does, but for `NotANumber` of a sum, which comes with the next `gathered`.
        """
        present = [number for number, gradient in enumerate(gradients) if gradient is not None]
        own = [segment for segment in self._segments if gradients[segment.number] is not None]
        batch_tensors = self.batch_tensors(share)

        def reduce_scatter(*arrays: np.ndarray) -> list[np.ndarray]:
            batch_values, values = arrays[: len(batch_tensors)], arrays[len(batch_tensors) :]
            dense = dict(zip(present, values))
            sums = self._reduce_scatter(self.batch(batch_values), [dense.get(i) for i in range(len(gradients))])
            return [*(sums[segment] for segment in own), _IN_ANY_CASE]

        inputs = batch_tensors + [gradients[number] for number in present]
        dtypes = [self._specs[segment.number].dtype for segment in own]
        sums = answers(tf.numpy_function(self._errors.guarded(reduce_scatter), inputs, [*dtypes, tf.float32]))
        for segment, tensor in zip(own, sums):
            tensor.set_shape(self._shape(segment))
        return dict(zip(own, sums))

    def gathered(self, values: dict[Segment, Tensor], in_step: bool = True) -> dict[int, Tensor]:
        """The variables of which this rank does not have all elements itself, by number.

        Args:
            values: Of each of this rank's segments.
            in_step: Behind the update of a step; else ranks only hand round what they have.
        """
        whole = {segment.number for segment in self._segments if segment.is_whole}
        numbers = [number for number in range(len(self._specs)) if number not in whole]

        def all_gather(*arrays: np.ndarray) -> list[np.ndarray]:
            gathered = self._all_gather(dict(zip(self._segments, arrays)), in_step)
            return [*(gathered[number] for number in numbers), _IN_ANY_CASE]

        dtypes = [self._specs[number].dtype for number in numbers]
        inputs = [values[segment] for segment in self._segments]
        result = answers(tf.numpy_function(self._errors.guarded(all_gather), inputs, [*dtypes, tf.float32]))
        for number, tensor in zip(numbers, result):
            tensor.set_shape(self._specs[number].shape)
        return dict(zip(numbers, result))

    def _shape(self, segment: Segment) -> tuple[int, ...]:
        return self._specs[segment.number].shape if segment.is_whole else (segment.stop - segment.begin,)

    def _reduce_scatter(self, batch: WeightedBatch, dense: Sequence[np.ndarray | None]) -> dict[Segment, np.ndarray]:
        peers, sums = self._peers, {}
        peers.progress.exchanges += 1
        self.steps += 1
        self._is_sum_finite, self._flats = True, self._take_flats()
        announcement = batch.announcement
        for shard, flat in zip(self._shards, self._flats):
            shard.layout.single_section.fill(flat, dense, batch.weight)
            if self._check_finite and not is_finite(flat):
                announcement = announcement._replace(flags=announcement.flags | NOT_FINITE)
        for shard, flat in zip(self._shards, self._flats):
            announced = peers.collective.reduce_scatter(flat, shard.bounds, announcement)
            self._count_time()
            self.settle(flat[shard.own], announced, batch, ())
            sums.update({segment: flat[segment.flat] for segment in shard.segments})
        if self._clipping is not None:
            self._clip(sums)
        return {segment: array.reshape(self._shape(segment)) for segment, array in sums.items()}

    def _clip(self, sums: dict[Segment, np.ndarray]) -> None:
        """Bound, in place, the norms of gradients of which the ranks have segments."""
        assert self._clipping is not None
        squares = np.zeros(len(self._specs))
        for segment, array in sums.items():
            squares[segment.number] = np.dot(array, array)
        self._peers.collective.allreduce(squares, self._peers.announcement(STEP))
        self._count_time()
        factors = self._clipping.factors(squares)
        for segment, array in sums.items():
            array *= array.dtype.type(factors[segment.number])

    def _blame(self, dense: Sequence[np.ndarray], weight: float) -> None:
        """This rank alone knows it, of finite gradients: the others learn it with what it announces next."""
        self._is_sum_finite = False

    def _all_gather(self, values: dict[Segment, np.ndarray], in_step: bool) -> dict[int, np.ndarray]:
        peers, gathered = self._peers, {}
        # The update has used the gradients: their buffers take the variables.
        flats, self._flats = self._flats or self._take_flats(), []
        for shard, flat in zip(self._shards, flats):
            for segment in shard.segments:
                flat[segment.flat] = values[segment].reshape(-1)
            flags = 0 if self._is_sum_finite else NOT_FINITE
            announcement = peers.announcement(STEP if in_step else WEIGHTS, flags=flags)
            announced = peers.collective.all_gather(flat, shard.bounds, announcement)
            self._count_time()
            peers.note(announced)
            if any(each.flags & NOT_FINITE for each in announced):
                self._refuse([])
            gathered.update({i: flat[where].reshape(self._specs[i].shape) for i, where in shard.layout.slices})
        return gathered

    def _take_flats(self) -> list[np.ndarray]:
        return [self._buffers.take(shard.dtype, shard.layout.size) for shard in self._shards]
