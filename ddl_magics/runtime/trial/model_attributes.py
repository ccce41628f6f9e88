"""What a model keeps in Python, as it was before a step was tried: numbers, tensors, and what lies in lists."""

from __future__ import annotations

import collections
import contextlib
from typing import Any, Iterator

import numpy as np
import tensorflow as tf

from ..keras_types import Model

_VALUES = (int, float, str, tuple, type(None), np.generic, tf.Tensor)
_INSTEAD_OF_ZERO, _FACTOR = 0.5, 0.7
_LISTS = (list, collections.deque)


@contextlib.contextmanager
def restored_attributes(model: Model) -> Iterator[None]:
    """Put back what code that runs meanwhile sets in attributes of `model`, or changes in them.

    Variables are left to `undone_assignments`, and what a model makes while it is built stays.
    """
    if not model.built:
        yield
        return
    before = {name: value for name, value in vars(model).items() if _is_cells(name, value)}
    contents = {name: _copy(value) for name, value in before.items()}
    yield
    for name, value in list(vars(model).items()):
        if name not in before:
            if isinstance(value, _VALUES) and _is_cells(name):
                object.__delattr__(model, name)
        elif value is not before[name]:
            if isinstance(before[name], _VALUES):
                object.__setattr__(model, name, before[name])
        elif contents[name] is not None:
            _restore(value, contents[name])


@contextlib.contextmanager
def other_numbers(model: Model) -> Iterator[bool]:
    """Give floats that a cell keeps as attributes of `model` other values for a while. Yields whether there are any.

    The weight of a term may begin at 0, for a callback to raise it.
    """
    before = {name: value for name, value in vars(model).items() if type(value) is float and _is_cells(name)}
    try:
        for name, value in before.items():
            object.__setattr__(model, name, value * _FACTOR or _INSTEAD_OF_ZERO)
        yield bool(before)
    finally:
        for name, value in before.items():
            object.__setattr__(model, name, value)


def _is_cells(name: str, value: Any = None) -> bool:
    """Whether the cell may have an attribute: what begins with an underscore is Keras', but for numbers."""
    return not name.startswith("_") or isinstance(value, (int, float))


def _copy(value: Any) -> Any:
    """The contents of a list, a dict, a set or an array; None for anything else."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, _LISTS):
        return list(value)
    return type(value)(value) if type(value) in (dict, set) else None


def _restore(value: Any, contents: Any) -> None:
    if isinstance(value, np.ndarray):
        value[...] = contents
    elif isinstance(value, _LISTS):
        if len(value) != len(contents) or any(item is not saved for item, saved in zip(value, contents)):
            value.clear()
            value.extend(contents)
    elif value.keys() != contents.keys() if isinstance(value, dict) else value != contents:
        value.clear()
        value.update(contents)
