"""Two histories of one cell: whether they are equal to rounding, or alike in kind. Pure.

Synchronous strategies compute the same sums in another order: the difference is rounding, which training amplifies from
epoch to epoch. No two runs of an asynchronous strategy are equal: they are alike if they have the same metrics and
number of epochs, and similar last values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

History = Mapping[str, Sequence[float]]

#: The largest relative difference of a value that counts as rounding, of float32 over a training.
ROUNDING = 1e-3
#: Of the last values of an asynchronous training.
ALIKE = 0.25
#: Smaller values count as this one: a loss near 0 has no relative difference.
SMALLEST = 1e-3

EQUAL, ROUNDED, IN_KIND, DIFFERENT = "equal", "equal to rounding", "alike in kind", "different"


@dataclass(frozen=True)
class Comparison:
    """verdict: EQUAL, ROUNDED, IN_KIND or DIFFERENT. lines: what the verdict is made of."""

    verdict: str
    lines: tuple[str, ...]


def compare(before: Sequence[History], after: Sequence[History], synchronous: bool) -> Comparison:
    """Compare the histories of two runs.

    Args:
        before, after: metric -> value per epoch, for each call of `fit` in order.
        synchronous: whether the strategy gives the same numbers in every run.
    """
    shape = list(_shape_differences(before, after))
    if shape:
        return Comparison(DIFFERENT, tuple(shape))
    differences = list(_value_differences(before, after))
    if not differences:
        return Comparison(EQUAL, ("neither has a history",))
    size, label, a, b = max(differences)
    largest = f"largest difference: {label}, {a:.6g} and {b:.6g} ({size:.1g} of it)"
    if size == 0:
        return Comparison(EQUAL, (f"all {len(differences)} values of the histories are equal",))
    if size <= ROUNDING:
        return Comparison(ROUNDED, (largest,))
    if synchronous:
        return Comparison(DIFFERENT, (largest,))
    finals = [(name, a[name][-1], b[name][-1]) for a, b in zip(before, after, strict=True) for name in a]
    lines = tuple(f"{name} at the end: {a:.4g} and {b:.4g}" for name, a, b in finals)
    alike = all(_relative_difference(a, b) <= ALIKE for _, a, b in finals)
    return Comparison(IN_KIND if alike else DIFFERENT, lines)


def _value_differences(
    before: Sequence[History], after: Sequence[History]
) -> Iterator[tuple[float, str, float, float]]:
    """(relative difference, its metric and epoch, value before, value after) of each value."""
    for fit, (a, b) in enumerate(zip(before, after, strict=True)):
        of_fit = f" of fit {fit + 1}" if len(before) > 1 else ""
        for name in a:
            for epoch, (x, y) in enumerate(zip(a[name], b[name], strict=True)):
                yield _relative_difference(x, y), f"{name} of epoch {epoch + 1}{of_fit}", x, y


def _shape_differences(before: Sequence[History], after: Sequence[History]) -> Iterator[str]:
    """Lines on calls of `fit`, metrics and epochs that only one side has."""
    if len(before) != len(after):
        yield f"{len(after)} calls of fit, was {len(before)}"
        return
    for a, b in zip(before, after, strict=True):
        for name in dict.fromkeys([*a, *b]):
            epochs_before, epochs_after = len(a.get(name, ())), len(b.get(name, ()))
            if epochs_before != epochs_after:
                yield f"{name} has {epochs_after} epochs, was {epochs_before}"


def _relative_difference(a: float, b: float) -> float:
    if a == b or (not isfinite(a) and not isfinite(b)):
        return 0.0
    if not (isfinite(a) and isfinite(b)):
        return float("inf")
    return abs(b - a) / max(abs(a), abs(b), SMALLEST)
