"""A `tf.function` of the cell that a step calls: it becomes a part of the step, and is not traced by itself.

Its own trace would be used again for other batches and other models, and would keep what was known when it was made:
how many rows the batch had, or that it was traced in an evaluation, where workers exchange nothing.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx, converter
from tensorflow.python.autograph.impl import api
from tensorflow.python.util import tf_decorator

from .cell_code import is_of_cell
from .patching import patched

_PACKAGE = __name__.rpartition(".trial.")[0]
#: The class of what `tf.function` makes, which has no public name.
_FUNCTION = type(tf.function(lambda: None))


def inlined_functions() -> contextlib.AbstractContextManager[None]:
    """Have functions of the cell that are called meanwhile run as AutoGraph converts them."""
    return patched([(_FUNCTION, "__call__", _inlining)])


def _inlining(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        _, python = tf_decorator.unwrap(function.python_function)
        if not is_of_cell(python) or str(python.__module__).startswith(_PACKAGE):
            return original(function, *args, **kwargs)
        if tf.config.functions_run_eagerly() or not function._autograph:
            return function.python_function(*args, **kwargs)
        # As tf.function has it. With all features, the step's later branches would have no control dependencies.
        options = converter.ConversionOptions(recursive=True, user_requested=True, optional_features=None)
        with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED, options=options):  # Keras disables it for its steps
            return api.converted_call(python, args, kwargs, options=options)

    return call
