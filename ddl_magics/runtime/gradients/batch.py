"""The batch in work: a rank's share of it, and a fingerprint by which ranks know that they read the same rows."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple, Sequence

import numpy as np

from ..keras_types import Batch, Tensor

#: A fingerprint looks at so many rows of a batch at most, spread over it, and so many first values of each.
SAMPLE_ROWS = 8
_SAMPLE_VALUES = 256
_GOLDEN_RATIO = 0.6180339887498949
_WEIGHTS = 0.5 + np.arange(SAMPLE_ROWS * _SAMPLE_VALUES) * _GOLDEN_RATIO % 1.0


class Share(NamedTuple):
    """An element of a cut dataset.

    batch: this rank's rows of what Keras would have got; one row of no weight where there are none.
    rows: how many rows are really this rank's, a scalar int64 tensor.
    total: rows of the global batch, a scalar int64 tensor; -1 where only this rank knows its data.
    sample: some rows of the global batch, a tensor of each of its parts, for `fingerprint`.
    """

    batch: Batch
    rows: Tensor
    total: Tensor
    sample: tuple[Tensor, ...] = ()


class LocalShare(Share):
    """A `Share` of data that only this rank knows: its `total` is -1."""


class Whole(NamedTuple):
    """An element of a dataset that is cut in the step: where ranks come and go, another part of it may become theirs.

    elements: a batch, or what a batch is gathered from.
    """

    elements: Any


def fingerprint(sample: Sequence[np.ndarray], total: int) -> tuple[float, float]:
    """(check, scale): a projection of a `Share`'s sample and total, and the sum of its terms' sizes, for `same_batch`.

    sample: arrays of shape (rows, ...), of numbers or of bytes (dtype object).
    """
    check = scale = float(total)
    for array in sample:
        values_of_rows = array.reshape(len(array), int(np.prod(array.shape[1:])))[:, :_SAMPLE_VALUES].ravel()
        numbers = (
            [zlib.crc32(value) % (1 << 20) for value in values_of_rows] if array.dtype == object else values_of_rows
        )
        values = np.nan_to_num(np.asarray(numbers, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        weights = _WEIGHTS[: len(values)]
        check += float(values @ weights)
        scale += float(np.abs(values) @ weights)
    return check, scale


def same_batch(check: float, scale: float, other_check: float, other_scale: float) -> bool:
    """Whether two fingerprints can be of the same rows, read on hosts whose floating point rounds differently."""
    return abs(check - other_check) <= 1e-3 * max(scale, other_scale)
