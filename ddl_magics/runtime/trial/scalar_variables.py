"""Numbers kept in variables that a function reads while it is tried, and the function with other ones.

The weight of a term may begin at 0 and grow from epoch to epoch, or a counter may choose between two losses: a trial
with the numbers of the first step alone would not see the rest.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Collection, Iterable, Iterator

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from .patching import patched

#: In place of 0; what other numbers are multiplied with; what is added to integers, which count.
_INSTEAD_OF_ZERO, _FACTOR, STEPS = 0.5, 0.7, 100_000


class ScalarVariables:
    """Variables of one number that are no weights: some that are known, and those that are read within `noted`.

    known: variables of TensorFlow of any shape. others: the ids of variables that are left alone.
    """

    def __init__(self, variables: Iterable[Any] = (), excluded: Collection[int] = ()) -> None:
        self._excluded = excluded
        self._variables = {id(variable): variable for variable in variables if self._counts(variable)}

    def noted(self) -> contextlib.AbstractContextManager[None]:
        def noting(original: Callable[..., Any]) -> Callable[..., Any]:
            def read(variable: Any, *args: Any, **kwargs: Any) -> Any:
                if self._counts(variable):
                    self._variables[id(variable)] = variable
                return original(variable, *args, **kwargs)

            return read

        return patched([(BaseResourceVariable, "_read_variable_op", noting)])

    def _counts(self, variable: Any) -> bool:
        dtype = variable.dtype
        return (
            variable.shape.rank == 0
            and not variable.trainable
            and (dtype.is_floating or dtype.is_integer)
            and id(variable) not in self._excluded
        )

    @contextlib.contextmanager
    def changed(self, steps: int = STEPS) -> Iterator[bool]:
        """Give the variables other values meanwhile; not for use in a trace. Yields whether there are any.

        steps: added to integers.
        """
        initialized = [variable for variable in self._variables.values() if bool(variable.is_initialized())]
        before = [(variable, variable.numpy()) for variable in initialized]
        for variable, value in before:
            variable.assign(_changed_value(value, variable.dtype, steps))
        try:
            yield bool(before)
        finally:
            for variable, value in before:
                variable.assign(value)


def _changed_value(value: Any, dtype: Any, steps: int) -> Any:
    if dtype.is_integer:
        return tf.constant(min(int(value) + steps, dtype.max), dtype)
    return tf.cast(float(value) * _FACTOR or _INSTEAD_OF_ZERO, dtype)
