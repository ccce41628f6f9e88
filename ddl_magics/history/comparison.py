"""Two histories of one cell: whether they are equal to rounding, or alike in kind. Pure.

Synchronous strategies compute the same sums in another order: the difference is rounding, which training amplifies from
epoch to epoch. Of asynchronous ones no two runs are equal: there the same metrics over as many epochs, which end near
each other, is what can be expected.
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


def compare(before: Sequence[History], now: Sequence[History], synchronous: bool) -> Comparison:
    """Of each call of `fit`, in order.

    Args:
        before, now: metric -> value per epoch.
        synchronous: whether the strategy gives the same numbers in every run.
    """
    shape = list(_shape(before, now))
    if shape:
        return Comparison(DIFFERENT, tuple(shape))
    differences = list(_differences(before, now))
    if not differences:
        return Comparison(EQUAL, ("neither has a history",))
    size, where, first, second = max(differences)
    largest = f"largest difference: {where}, {first:.6g} and {second:.6g} ({size:.1g} of it)"
    if size == 0:
        return Comparison(EQUAL, (f"all {len(differences)} values of the histories are equal",))
    if size <= ROUNDING:
        return Comparison(ROUNDED, (largest,))
    if synchronous:
        return Comparison(DIFFERENT, (largest,))
    last = [(name, one[name][-1], other[name][-1]) for one, other in zip(before, now, strict=True) for name in one]
    ends = [(_relative(old, new), name, old, new) for name, old, new in last]
    lines = tuple(f"{name} at the end: {old:.4g} and {new:.4g}" for _, name, old, new in ends)
    return Comparison(IN_KIND if all(size <= ALIKE for size, *_ in ends) else DIFFERENT, lines)


def _differences(before: Sequence[History], now: Sequence[History]) -> Iterator[tuple[float, str, float, float]]:
    """(relative difference, where, value before, value now) of each value."""
    for fit, (one, other) in enumerate(zip(before, now, strict=True)):
        of_fit = f" of fit {fit + 1}" if len(before) > 1 else ""
        for name in one:
            for epoch, (old, new) in enumerate(zip(one[name], other[name], strict=True)):
                yield _relative(old, new), f"{name} of epoch {epoch + 1}{of_fit}", old, new


def _shape(before: Sequence[History], now: Sequence[History]) -> Iterator[str]:
    """What is not there on both sides."""
    if len(before) != len(now):
        yield f"{len(now)} calls of fit, was {len(before)}"
        return
    for one, other in zip(before, now, strict=True):
        for name in dict.fromkeys([*one, *other]):
            old, new = len(one.get(name, ())), len(other.get(name, ()))
            if old != new:
                yield f"{name} has {new} epochs, was {old}"


def _relative(old: float, new: float) -> float:
    if old == new or (not isfinite(old) and not isfinite(new)):
        return 0.0
    if not (isfinite(old) and isfinite(new)):
        return float("inf")
    return abs(new - old) / max(abs(old), abs(new), SMALLEST)
