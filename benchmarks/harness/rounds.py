"""The order in which a benchmark measures its variants."""

from __future__ import annotations

from collections.abc import Iterable


def rotated(variants: Iterable[str], number: int) -> list[str]:
    """The variants in the order of this round: each round begins with another one.

    A disturbance then does not always meet the same variant.
    """
    names = list(variants)
    begin = number % len(names)
    return names[begin:] + names[:begin]
