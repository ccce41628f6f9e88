"""Rows of different lengths, to find out by trial whether a model takes a length from all rows of a batch.

Row after row is longer: strings by their words, ragged tensors by their entries, and numbers by what lies before their
padding. So the longest row of a part of the batch is shorter than that of the batch, unless the part is the last one.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import numpy as np

from . import row_trial
from .row_trial import INPUT, Leaf

#: The words of the longest string, and the largest number that may be a length, where no axis tells more.
_LONGEST = 12

_MOST_PADDINGS = 3


def paddings_of(compared: Sequence[float]) -> list[float]:
    """Numbers that may be padding, among them those that a model compares its inputs with."""
    return list(dict.fromkeys([0.0, *compared]))[:_MOST_PADDINGS]


def made_up(leaves: Sequence[Leaf], rows: int, padding: float, alike: bool = False) -> Iterator[list[Any]]:
    """Rows of different lengths: an array for each leaf, or a ragged tensor.

    They come twice, because what is one number a row may be its length, or a category of few: first different numbers,
    then ones.

    alike: of the same length, without padding.
    """
    sizes = [leaf.shape[0] for leaf in leaves if leaf.role == INPUT and not _is_one_number(leaf) and leaf.shape]
    longest = max(sizes, default=_LONGEST)
    made_up_rows = next(row_trial.made_up(leaves, [("probabilities", ())], rows))
    for largest in (longest, 1):
        yield [
            _values(leaf, rows, padding, alike, largest) if leaf.role == INPUT or leaf.ragged_rank else values
            for leaf, values in zip(leaves, made_up_rows)
        ]


def _values(leaf: Leaf, rows: int, padding: float, alike: bool, largest: int) -> Any:
    random = np.random.default_rng(0)
    shape, is_integer = (rows, *leaf.shape), leaf.dtype.kind in "iu"
    if leaf.dtype == object and not leaf.ragged_rank:
        words = [b" ".join([b"1"] * length) for length in _lengths(rows, _LONGEST, alike)]
        return np.broadcast_to(np.array(words, object).reshape(-1, *(1 for _ in leaf.shape)), shape)
    if is_integer and _is_one_number(leaf):
        return _lengths(rows, largest, alike).astype(leaf.dtype).reshape(shape)
    padding = padding if row_trial.can_have(leaf.dtype, padding) else 0.0
    axes = leaf.ragged_rank or (len(leaf.shape) if is_integer or len(leaf.shape) < 2 else len(leaf.shape) - 1)
    before_padding = np.ones(shape[: 1 + axes], bool)
    for axis, size in enumerate(leaf.shape[:axes]):
        of_axis = np.arange(size) < _lengths(rows, size, alike)[:, np.newaxis]
        before_padding &= of_axis.reshape(rows, *(size if i == axis else 1 for i in range(axes)))
    if leaf.dtype == object:
        values: Any = np.full(shape, b"1", object)
    elif is_integer:
        values = (padding + random.integers(1, 3, shape)).astype(leaf.dtype)
    else:
        values = (padding + random.uniform(0.05, 0.95, shape)).astype(leaf.dtype)
    if leaf.ragged_rank:
        return row_trial.as_ragged(values, before_padding)
    is_value = before_padding.reshape(*before_padding.shape, *(1 for _ in leaf.shape[axes:]))
    return np.where(is_value, values, leaf.dtype.type(padding))


def _lengths(rows: int, longest: int, alike: bool) -> np.ndarray:
    return np.full(rows, longest) if alike else np.linspace(1, longest, rows).round().astype(int)


def _is_one_number(leaf: Leaf) -> bool:
    return not leaf.ragged_rank and int(np.prod(leaf.shape)) == 1
