"""Where code of the cell runs on made-up rows: it leaves no trace, and what it reads and compares is recorded."""

from __future__ import annotations

import contextlib
from typing import Any, Iterable, Iterator

import tensorflow as tf
from tensorflow.python import pywrap_tfe

from .comparisons import Comparisons
from .layers_in_trial import layers_in_trial
from .python_state import PythonState
from .repeatable_noise import RepeatableNoise
from .scalar_variables import ScalarVariables
from .undone_assignments import undone_assignments
from .without_effects import without_effects


class Sandbox:
    """The state of one trial of `rows` rows.

    noise: gives the same rows the same random numbers. scalars: the variables of one number that the code reads.
    comparisons: the numbers that it compares tensors with. python: what it keeps in Python.
    """

    def __init__(self, rows: int, code: Iterable[Any], scalars: ScalarVariables | None = None) -> None:
        """code: functions and objects whose code runs here."""
        self._code = list(code)
        self.python = PythonState(self._code)
        self.noise, self.comparisons = RepeatableNoise(rows), Comparisons()
        self.scalars = ScalarVariables() if scalars is None else scalars

    @contextlib.contextmanager
    def python_as_now(self) -> Iterator[None]:
        """What the code keeps in Python is for a while what it is now."""
        before, self.python = self.python, PythonState(self._code)
        try:
            yield
        finally:
            self.python = before

    @contextlib.contextmanager
    def entered(self) -> Iterator[list[Any]]:
        """Run what follows eagerly, and undo it. Yields the list of the variables that it creates and assigns."""
        noise, reads, compares = self.noise.drawn(), self.scalars.noted(), self.comparisons.noted()
        python, undone = self.python.restored(), undone_assignments()
        with tf.init_scope(), _recording(), noise, python, undone as created, without_effects(), reads, compares:
            yield created

    @contextlib.contextmanager
    def entered_with(self, layer_class: Any, training: bool) -> Iterator[None]:
        """As `entered`, for a step of a model.

        layer_class: Keras' class of layers. training: call the cell's layers, and each `tf.function`, as the step calls
        them in training; otherwise, call all layers as in inference.
        """
        eager = _functions_run_eagerly() if training else contextlib.nullcontext()
        with self.entered(), layers_in_trial(layer_class, training), eager:
            yield


@contextlib.contextmanager
def _recording() -> Iterator[None]:
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
def _functions_run_eagerly() -> Iterator[None]:
    """A `tf.function` runs like a function of Python, so that what it draws and compares is seen."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
