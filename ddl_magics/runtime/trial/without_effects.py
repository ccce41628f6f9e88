"""A trial leaves no trace: what a function prints or writes for rows that were made up does not appear."""

from __future__ import annotations

import builtins
import contextlib
from typing import Any, Callable, Iterator

import tensorflow as tf
from tensorflow.python.ops import gen_logging_ops

from .patching import Patch, patched


@contextlib.contextmanager
def without_effects() -> Iterator[None]:
    """Leave out what this thread prints, summaries, and functions of Python that are called for their effect alone.

    Such a function is one of tf.py_function or tf.numpy_function without a result. What is traced meanwhile, and may be
    used again, stays as it is.
    """

    def elsewhere(original: Callable[..., Any]) -> Callable[..., Any]:
        """`original`, unless TensorFlow computes at once."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if tf.executing_eagerly():
                return None
            return original(*args, **kwargs)

        return call

    def with_result(original: Callable[..., Any]) -> Callable[..., Any]:
        """`original`, unless TensorFlow computes at once and the function has no result."""

        def call(func: Any, inp: Any, Tout: Any, *args: Any, **kwargs: Any) -> Any:
            if tf.executing_eagerly() and Tout in ([], ()):
                return []
            return original(func, inp, Tout, *args, **kwargs)

        return call

    left_out: list[Patch] = [
        (builtins, "print", elsewhere),
        (gen_logging_ops, "print_v2", elsewhere),
        (tf, "py_function", with_result),
        (tf, "numpy_function", with_result),
    ]
    with patched(left_out), tf.summary.record_if(False):
        yield
