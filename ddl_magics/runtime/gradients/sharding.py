"""Which elements of its variables each rank updates, where the update is sharded over the ranks.

The scheme is stage 1 of Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion parameter
models".
"""

from __future__ import annotations

import bisect
from typing import NamedTuple, Sequence

import numpy as np

from ..transport.buffers import ALIGNMENT_BYTES
from .exchange import Layout


class Spec(NamedTuple):
    """A variable. may_split: its elements are updated one by one, so that two ranks can each have some of them."""

    shape: tuple[int, ...]
    dtype: np.dtype
    may_split: bool


class Segment(NamedTuple):
    """Elements `begin` to `stop` of variable `number`, which lie at `offset` in the buffer of their shard.

    is_whole: these are all elements of the variable.
    """

    number: int
    begin: int
    stop: int
    offset: int
    is_whole: bool

    @property
    def flat(self) -> slice:
        """Where they lie in the buffer."""
        return slice(self.offset, self.offset + self.stop - self.begin)


class Shard:
    """The variables of one dtype in a flat buffer, of which each rank updates a part.

    Attributes:
        layout: Where the variables lie in the buffer.
        bounds: Where the part of each rank begins, in order of `Collective.position`, and where the last one ends.
        own: The elements of this rank, as a slice of the buffer; segments: the same, by variable.
    """

    def __init__(self, dtype: np.dtype, specs: Sequence[Spec], size: int, position: int) -> None:
        """size: the number of ranks; position: of this rank among them."""
        self.dtype = dtype
        self.layout = Layout(dtype, [np.broadcast_to(np.zeros((), spec.dtype), spec.shape) for spec in specs])
        self.bounds = self._bounds(specs, size)
        self.own = slice(*self.bounds[position : position + 2])
        self.segments = [
            segment for segment in map(self._own_segment, self.layout.slices) if segment.begin < segment.stop
        ]

    def _bounds(self, specs: Sequence[Spec], size: int) -> list[int]:
        """Parts of equal length, but where a bound would split a variable that must stay whole."""
        total, step = self.layout.size, ALIGNMENT_BYTES // self.dtype.itemsize
        begins = [elements.start for _, elements in self.layout.slices]
        bounds = [0]
        for position in range(1, size):
            bound = total * position // size // step * step
            index = bisect.bisect_right(begins, bound) - 1
            number, elements = self.layout.slices[index]
            if not specs[number].may_split and bound != elements.start:
                after = begins[index + 1] if index + 1 < len(begins) else total
                bound = elements.start if bound - elements.start <= after - bound else after
            bounds.append(bound)
        return [*bounds, total]

    def _own_segment(self, variable: tuple[int, slice]) -> Segment:
        number, elements = variable
        begin = min(max(self.own.start, elements.start), elements.stop)
        stop = max(min(self.own.stop, elements.stop), begin)
        is_whole = (begin, stop) == (elements.start, elements.stop)
        return Segment(number, begin - elements.start, stop - elements.start, begin, is_whole)


def segments(shards: Sequence[Shard]) -> list[Segment]:
    """This rank's, of all shards."""
    return [segment for shard in shards for segment in shard.segments]


def shards(specs: Sequence[Spec], size: int, position: int) -> list[Shard]:
    """One for each dtype, the same on all ranks but for what is `own`."""
    return [Shard(dtype, specs, size, position) for dtype in sorted({spec.dtype for spec in specs}, key=str)]
