"""How what is tried runs within `tf.init_scope`: operation by operation, and with gradient tapes."""

from __future__ import annotations

import contextlib
from typing import Iterator

import tensorflow as tf
from tensorflow.python import pywrap_tfe


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Tapes record meanwhile, also where TensorFlow has stopped them."""
    stopped = pywrap_tfe.TFE_Py_TapeSetIsStopped()
    if stopped:
        pywrap_tfe.TFE_Py_TapeSetRestartOnThread()
    try:
        yield
    finally:
        if stopped:
            pywrap_tfe.TFE_Py_TapeSetStopOnThread()


@contextlib.contextmanager
def functions_run_eagerly() -> Iterator[None]:
    """A `tf.function` runs like a function of Python, so that what it draws and compares is seen."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
