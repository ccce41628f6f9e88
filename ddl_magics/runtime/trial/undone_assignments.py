"""Variables that are assigned while a function is tried have their values back afterwards."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from .patching import patched

#: How the names of the methods begin that change a variable.
_CHANGING = ("assign", "scatter_", "batch_scatter")


@contextlib.contextmanager
def undone_assignments() -> Iterator[list[Any]]:
    """Undo what is assigned to any variable, also to one of which nobody here knows.

    A variable that TensorFlow has made while it traces, and would initialize afterwards, has no value before. Such
    variables are listed, and keep what they are assigned.
    """
    before: dict[int, tuple[Any, Any]] = {}
    created: list[Any] = []

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def assign(variable: Any, *args: Any, **kwargs: Any) -> Any:
            if id(variable) not in before:
                with tf.init_scope():
                    has_value = bool(variable.is_initialized())
                    before[id(variable)] = (variable, np.copy(variable.numpy()) if has_value else None)
                if not has_value:
                    created.append(variable)
            return original(variable, *args, **kwargs)

        return assign

    try:
        with patched((kind, name, noting) for kind, name in changing_methods(BaseResourceVariable)):
            yield created
    finally:
        for variable, value in before.values():
            if value is not None:
                variable.assign(value)


def changing_methods(kind: type) -> Iterator[tuple[type, str]]:
    """The methods that change a variable, of a class and of those below it: (class, name)."""
    for name, method in list(vars(kind).items()):
        if name.startswith(_CHANGING) and callable(method):
            yield kind, name
    below: list[type] = kind.__subclasses__()
    for subclass in below:
        yield from changing_methods(subclass)
