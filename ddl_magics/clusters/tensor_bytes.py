"""The bytes that pipelines, tensors and objects of Keras take when they are sent, counted without making them."""

from __future__ import annotations

import sys
from typing import Any

_KERAS = ("keras", "tf_keras")
#: Texts whose lengths are measured; the others of a tensor count as equally long.
_MEASURED = 1000


def of(value: Any) -> int | None:
    """None for what is none of them, and at once where TensorFlow is not imported."""
    tf = sys.modules.get("tensorflow")
    if tf is None:
        return None
    if isinstance(value, tf.data.Dataset):
        return _of_pipeline(value)
    if isinstance(value, tf.Tensor | tf.Variable):
        return _of_tensor(value)
    is_of_keras = any(base.__module__.partition(".")[0] in _KERAS for base in type(value).__mro__)
    return _of_keras(value) if is_of_keras else None


def _of_pipeline(dataset: Any) -> int:
    """Of the arrays that it slices, and of those that its functions use: all are in its graph, as often as read."""
    sizes: dict[int, int] = {}

    def size(source: Any) -> int:
        if id(source) not in sizes:
            used = [tensor for wrapped in source._functions() for tensor in wrapped.function.captured_inputs]
            own = sum(map(_of_tensor, [*getattr(source, "_tensors", ()), *used]))
            sizes[id(source)] = own + sum(map(size, source._inputs()))
        return sizes[id(source)]

    return size(dataset)


def _of_keras(value: Any) -> int | None:
    """Of its variables and those of its optimizer."""
    try:
        variables = [*_variables(value), *_variables(getattr(value, "optimizer", None))]
    except Exception:  # Keras 2's, of a model without an input yet
        return None
    return sum(_of_tensor(variable) for variable in variables) or None


def _variables(value: Any) -> Any:
    variables = getattr(value, "variables", ())
    return variables() if callable(variables) and not isinstance(variables, list) else variables


def _of_tensor(tensor: Any) -> int:
    import tensorflow as tf

    try:
        elements, dtype = tf.TensorShape(tensor.shape).num_elements() or 0, tf.as_dtype(tensor.dtype)
    except (AttributeError, TypeError, ValueError):  # a vocabulary, which Keras 2 counts among the variables
        return 0
    if dtype in (tf.resource, tf.variant):
        return 0
    if dtype != tf.string or not hasattr(tensor, "numpy"):
        return int(elements * dtype.size)
    texts = tf.reshape(tensor, [-1])[:_MEASURED].numpy()
    return elements * sum(map(len, texts)) // max(len(texts), 1)
