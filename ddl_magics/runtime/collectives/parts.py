"""The parts of a buffer, one for each rank, and the pieces in which all parts are exchanged at the same time.

Parts are given by their bounds: one offset more than there are parts, ascending, from 0 to the length of the buffer.
"""

from __future__ import annotations

import zlib
from typing import Sequence

import numpy as np

Bounds = Sequence[int]


def even(length: int, count: int) -> list[int]:
    """The bounds of `count` parts whose lengths differ by one element at most."""
    return [length * part // count for part in range(count + 1)]


def check(bounds: Bounds, count: int, length: int) -> None:
    """Raises ValueError for anything else than the bounds of `count` parts of a buffer of `length` elements."""
    ascending = all(begin <= stop for begin, stop in zip(bounds, bounds[1:]))
    if len(bounds) != count + 1 or not ascending or (bounds[0], bounds[-1]) != (0, length):
        raise ValueError("%d parts need %d ascending bounds from 0 to %d" % (count, count + 1, length))


def fingerprint(bounds: Bounds) -> int:
    """32 bits by which ranks find that their bounds differ."""
    return zlib.crc32(np.array(bounds, "<i8").tobytes())


def pieces(bounds: Bounds, step: int) -> list[list[slice]]:
    """The slices of the buffer that each piece consists of: the next `step` elements of every part, or what is left."""
    parts = list(zip(bounds, bounds[1:]))
    longest = max(stop - begin for begin, stop in parts)
    return [
        [slice(min(begin + offset, stop), min(begin + offset + step, stop)) for begin, stop in parts]
        for offset in range(0, longest, step)
    ]
