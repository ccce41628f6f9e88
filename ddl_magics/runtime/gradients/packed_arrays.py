"""Arrays as bytes, for ranks that know their dtypes and the number of their axes from their own."""

from __future__ import annotations

import struct
from typing import Sequence

import numpy as np


def pack(arrays: Sequence[np.ndarray]) -> bytes:
    """The shapes and values of arrays of numbers. ValueError for strings."""
    pieces = []
    for array in arrays:
        if array.dtype == object:
            raise ValueError("strings cannot be gathered from the workers; encode them as numbers")
        pieces += [struct.pack("=%dq" % array.ndim, *array.shape), np.ascontiguousarray(array).tobytes()]
    return b"".join(pieces)


def unpack(payload: bytes, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What another rank has packed. ValueError where its arrays differ from `like` in other axes than the first."""
    arrays, begin = [], 0
    for array in like:
        shape = struct.unpack_from("=%dq" % array.ndim, payload, begin)
        begin += 8 * array.ndim
        if shape[1:] != array.shape[1:]:
            message = (
                "the rows of the workers have different shapes, %s and %s, and cannot be put together; pad them alike"
            )
            raise ValueError(message % (array.shape[1:], shape[1:]))
        count = int(np.prod(shape))
        arrays.append(np.frombuffer(payload, array.dtype, count, begin).reshape(shape))
        begin += count * array.dtype.itemsize
    return arrays
