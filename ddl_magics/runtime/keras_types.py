"""Names for objects of TensorFlow and Keras, which have no types: they say what is meant, and check nothing.

Beside them, what tells Keras' own classes from those of a cell.
"""

from __future__ import annotations

import types
from typing import Any

#: The module.
TensorFlow = Any
Tensor = Any
Variable = Any
#: A tf.data.Dataset.
Dataset = Any
Model = Any
Layer = Any
Metric = Any
Optimizer = Any
#: Gradients as an optimizer gets them: tensors, tf.IndexedSlices, or None.
Gradient = Any
#: What Keras calls a batch: a tensor, or a tuple of (nested) tensors.
Batch = Any


def is_of_keras(object_type: type | types.FunctionType) -> bool:
    """Whether a class or a function is Keras' own."""
    return str(object_type.__module__).partition(".")[0] == "keras"


def is_along_rows(axes: Any) -> bool:
    """Whether an argument `axis` of Keras, a number or several, may mean the first axis of a batch."""
    numbers = axes if isinstance(axes, (list, tuple)) else [axes]
    return any(isinstance(axis, int) and (axis == 0 or axis < -1) for axis in numbers)


def inner_optimizer(optimizer: Optimizer) -> Optimizer:
    """The optimizer inside a LossScaleOptimizer; any other optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def array_of(variable: Variable) -> Any:
    """The value of a variable without a copy, which would take seconds, and its memory, for a large one.

    Nothing may write to it.
    """
    import numpy as np

    resource: Any = getattr(variable, "_value", variable)  # Keras 3 has a variable of TensorFlow
    tensor = resource.value() if callable(getattr(resource, "value", None)) else variable
    view = getattr(tensor, "_numpy", None)
    return np.asarray(view() if view is not None else variable)
