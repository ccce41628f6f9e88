"""A fit of one step, by which a rank that is about to join the others traces and compiles what its steps are."""

from __future__ import annotations

import contextlib
import random
from typing import Any, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from ..keras_types import Dataset, Tensor

#: What stands for lengths that a dataset does not tell: of a batch, and of other axes.
_ROWS, _LENGTH = 8, 4


def arguments(of_fit: Mapping[str, Any]) -> dict[str, Any] | None:
    """Those of the rehearsal of a call of `fit`, by name; None where its data cannot be had twice.

    A dataset of the cell is not read, as it may have another order then: rows of zeros stand for its own.
    """
    data = of_fit.get("x")
    if isinstance(data, tf.data.Dataset):
        data = _zeros(data.element_spec)
    elif not isinstance(data, (np.ndarray, tf.Tensor, list, tuple, dict)):
        return None
    if data is None:
        return None
    once = {"epochs": 1, "initial_epoch": 0, "steps_per_epoch": 1, "verbose": 0, "validation_freq": [2]}
    return {**of_fit, **once, "x": data}


@contextlib.contextmanager
def streams_put_back() -> Iterator[None]:
    """What is drawn meanwhile of Python's, NumPy's and TensorFlow's streams, and of Keras', is drawn again after it."""
    generator = keras.src.backend.common.global_state.get_global_attribute("global_seed_generator")
    states = random.getstate(), np.random.get_state(), context.context()._rng.getstate()
    seed = None if generator is None else generator.state.numpy()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        context.context()._rng.setstate(states[2])
        if generator is None:
            keras.src.backend.common.global_state.set_global_attribute("global_seed_generator", None)
        else:
            generator.state.assign(seed)


def _zeros(spec: Any) -> Dataset | None:
    """A dataset of one batch of zeros of a spec; None for other batches than of tensors."""
    if not all(isinstance(each, tf.TensorSpec) and each.shape.rank for each in tf.nest.flatten(spec)):
        return None

    def batch(_: Tensor) -> Any:
        return tf.nest.map_structure(_zeros_of, spec)

    return tf.data.Dataset.from_tensors(0).map(batch)


def _zeros_of(spec: tf.TensorSpec) -> Tensor:
    sizes = [(_LENGTH if axis else _ROWS) if size is None else size for axis, size in enumerate(spec.shape)]
    return tf.compat.v1.placeholder_with_default(tf.zeros(sizes, spec.dtype), spec.shape)
