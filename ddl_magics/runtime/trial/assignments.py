"""Variables that a step sets from its rows, such as a running mean: each rank would set them from its own slice.

What a step assigns is followed back in its graph. It is a rank's own where it leads to the rows of the batch, and not
to what ranks have exchanged: gradients, moments, gathered rows.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator, Sequence

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from .patching import patched
from .undone_assignments import changing_methods

#: The operations of exchanges: what they give is the same on all ranks.
_EXCHANGES = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


@contextlib.contextmanager
def recorded_assignments(counts: Callable[[], bool]) -> Iterator[list[tuple[Any, Any]]]:
    """(variable, value) of the assignments that are traced while `counts()` is true; None for a value of Python."""
    assignments: list[tuple[Any, Any]] = []

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def assign(variable: Any, *args: Any, **kwargs: Any) -> Any:
            values = [value for value in (*args, *kwargs.values()) if tf.is_tensor(value)]
            if counts():
                assignments.extend((variable, value) for value in values or [None])
            return original(variable, *args, **kwargs)

        return assign

    with patched((kind, name, noting) for kind, name in changing_methods(BaseResourceVariable)):
        yield assignments


def depends_on_rows(value: Any) -> bool:
    """Whether a tensor of a graph is computed from what the graph is given, and that is not exchanged."""
    visited, waiting = set(), [value]
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in visited or not hasattr(tensor, "op") or tensor.dtype == tf.resource:
            continue
        visited.add(id(tensor))
        if tensor.op.type == "Placeholder":
            captured = {id(inner): outer for outer, inner in getattr(tensor.graph, "captures", ())}
            if id(tensor) not in captured:
                return True
            waiting.append(captured[id(tensor)])
        elif tensor.op.type not in _EXCHANGES:
            waiting.extend(tensor.op.inputs)
    return False


def set_alike(assigned: Sequence[tuple[Any, Any]]) -> set[int]:
    """The ids of the variables that a step in a graph sets to what depends on no rows: all ranks set them alike."""
    from_rows = {id(variable) for variable, value in assigned if depends_on_rows(value)}
    return {id(variable) for variable, _ in assigned} - from_rows
