"""The numbers with which a step compares tensors while it is tried: marks of padding, and bounds.

A bound may lie where no value of a trial gets: a sum may be divided by the number of rows, but at least by 100, and
gradients may be clipped where they are very large. So a step is tried once more with such bounds among its values.
"""

from __future__ import annotations

import contextlib
import functools
import math
import types
from typing import Any, Iterator, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_math_ops

from .patching import patched

#: TensorFlow's operations that compare, by whatever name a cell calls them.
_EQUALITIES = ("Equal", "NotEqual")
_CHOICES = ("Maximum", "Minimum")
_COMPARING = (*_EQUALITIES, *_CHOICES, "Less", "LessEqual", "Greater", "GreaterEqual")
_MAX_NUMBERS = 8

#: A bound so many times as large as any value is there for numbers that are none.
_NEVER_REACHED = 1e6


class Comparisons:
    """What TensorFlow compares with one number while `noted`. numbers: those so far, each once, at most eight."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self._bounds: dict[Any, _Bound] = {}
        self._instead: dict[Any, float] = {}

    def noted(self) -> contextlib.AbstractContextManager[None]:
        return patched([(gen_math_ops, "pywrap_tfe", self._noting)])

    def begin(self) -> None:
        """Values from here on tell where `moved_bounds` has a bound."""
        for bound in self._bounds.values():
            bound.low, bound.high = math.inf, 0.0

    def unreached(self) -> list[Any]:
        """The bounds that no value has reached, or that are always taken in place of the values."""
        return [key for key, bound in self._bounds.items() if bound.unreached(key[-1])]

    @contextlib.contextmanager
    def moved_bounds(self, bounds: Sequence[Any]) -> Iterator[None]:
        """`bounds` lie among the values since `begin`."""
        self._instead = {key: self._bounds[key].among(key[-1]) for key in bounds if self._bounds[key].high}
        try:
            yield
        finally:
            self._instead = {}

    def _noting(self, tensorflow: Any) -> Any:
        """`tensorflow`, by which operations are run at once, with an eye on those that compare."""
        run = tensorflow.TFE_Py_FastPathExecute

        @functools.wraps(run)
        def compare(context: Any, operation: str, name: Any, *inputs: Any) -> Any:
            if operation in _COMPARING:
                inputs = (*self._sides(operation, *inputs[:2]), *inputs[2:])
            return run(context, operation, name, *inputs)

        return types.SimpleNamespace(**{**vars(tensorflow), run.__name__: compare})

    def _sides(self, operation: str, x: Any, y: Any) -> list[Any]:
        """What is compared in place of `x` and `y`."""
        sides = [x, y]
        for i, number in enumerate((_number(x), _number(y))):
            if number is None:
                continue
            if operation not in _CHOICES and number not in self.numbers and len(self.numbers) < _MAX_NUMBERS:
                self.numbers.append(number)
            if operation not in _EQUALITIES and number:
                sides[i] = self._bound((operation, i, number), (x, y)[i], (x, y)[1 - i])
        return sides

    def _bound(self, key: tuple[str, int, float], bound: Any, values: Any) -> Any:
        """`bound` as it is to be compared with `values`."""
        if not tf.is_tensor(values) or not hasattr(values, "numpy"):
            return bound
        if key in self._instead:
            return _like(bound, self._instead[key])
        if not self._instead:
            self._bounds.setdefault(key, _Bound(key[0] in _CHOICES)).note(np.asarray(values, np.float64), key)
        return bound


class _Bound:
    """Between which sizes the values lie that were compared with a number, and whether these reach it."""

    def __init__(self, chooses: bool) -> None:
        self._below, self._is_always_chosen = True, chooses
        self.low, self.high = math.inf, 0.0

    def note(self, values: np.ndarray, key: tuple[str, int, float]) -> None:
        name, _, number = key
        sizes = np.abs(values[np.isfinite(values)])
        if sizes.size == 0:
            return
        self.low, self.high = min(self.low, float(sizes.min())), max(self.high, float(sizes.max()))
        self._below &= self.high < abs(number)
        self._is_always_chosen &= bool(np.all(values <= number if name == "Maximum" else values >= number))

    def unreached(self, number: float) -> bool:
        """Whether all values are smaller than the number, or it is always what is taken."""
        differ = self.low < self.high * (1 - 1e-6)
        return (self._below or self._is_always_chosen) and differ and abs(number) < _NEVER_REACHED * self.high

    def among(self, number: float) -> float:
        return math.copysign((self.low + self.high) / 2, number)


def _number(side: Any) -> float | None:
    if tf.is_tensor(side):
        if not isinstance(side, tf.Tensor):  # a variable, of TensorFlow or of Keras
            return None
        if side.shape.rank != 0 or not (side.dtype.is_floating or side.dtype.is_integer):
            return None
        side = tf.get_static_value(side)
    try:
        number = float(side)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _like(bound: Any, number: float) -> Any:
    """`number` in the type of `bound`."""
    if tf.is_tensor(bound):
        return tf.cast(round(number) if bound.dtype.is_integer else number, bound.dtype)
    return round(number) if isinstance(bound, (int, np.integer)) else type(bound)(number)
