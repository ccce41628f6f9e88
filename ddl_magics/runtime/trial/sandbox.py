"""Where code of the cell runs on made-up rows: it leaves no trace, and what it reads and compares is recorded."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import tensorflow as tf
from tensorflow.python import pywrap_tfe

from ..keras_types import Model
from .comparisons import Comparisons
from .layers_in_trial import layers_in_trial
from .model_attributes import restored_attributes
from .repeatable_noise import RepeatableNoise
from .scalar_variables import ScalarVariables
from .undone_assignments import undone_assignments
from .without_effects import without_effects


class Sandbox:
    """The state of one trial of `rows` rows.

    noise: gives the same rows the same random numbers. scalars: the variables of one number that the code reads.
    comparisons: the numbers that it compares tensors with.
    """

    def __init__(self, rows: int, scalars: ScalarVariables | None = None) -> None:
        self.noise, self.comparisons = RepeatableNoise(rows), Comparisons()
        self.scalars = ScalarVariables() if scalars is None else scalars

    @contextlib.contextmanager
    def entered(self) -> Iterator[list[Any]]:
        """Run what follows eagerly, and undo it. Yields the list of the variables that it creates and assigns."""
        noise, reads, compares = self.noise.drawn(), self.scalars.noted(), self.comparisons.noted()
        with tf.init_scope(), _recording(), noise, undone_assignments() as created, without_effects(), reads, compares:
            yield created

    @contextlib.contextmanager
    def entered_with(self, model: Model, layer_class: Any, training: bool) -> Iterator[None]:
        """As `entered`, for a step of `model`, whose attributes are restored.

        layer_class: Keras' class of layers. training: call the cell's layers, and each `tf.function`, as the step calls
        them in training; otherwise, call all layers as in inference.
        """
        eager = _functions_run_eagerly() if training else contextlib.nullcontext()
        with self.entered(), restored_attributes(model), layers_in_trial(layer_class, training), eager:
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
