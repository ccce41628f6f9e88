"""Other numbers in the attributes of a model, for a step that is tried with them."""

from __future__ import annotations

import contextlib
from typing import Iterator

from ..keras_types import Model

_INSTEAD_OF_ZERO, _FACTOR = 0.5, 0.7


@contextlib.contextmanager
def other_numbers(model: Model) -> Iterator[bool]:
    """Give floats that a cell keeps as attributes of `model` other values for a while. Yields whether there are any.

    The weight of a term may begin at 0, for a callback to raise it.
    """
    before = {name: value for name, value in vars(model).items() if type(value) is float and name[0] != "_"}
    try:
        for name, value in before.items():
            object.__setattr__(model, name, value * _FACTOR or _INSTEAD_OF_ZERO)
        yield bool(before)
    finally:
        for name, value in before.items():
            object.__setattr__(model, name, value)
