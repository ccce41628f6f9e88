"""--transform: a function of the user's between the rows of --data and the model.

Ranks map it over the batches of `dataset`, and executors, to which it travels by value (`by_value.py`), over those that
they score.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Tuple

#: Of TensorFlow, which has no types: its module, a tf.data.Dataset, a tensor or a dict of tensors.
TensorFlow = Any
Dataset = Any
Features = Any
Transform = Callable[[Features], Features]

BATCH = ":batch"
#: The argument that says whether the rows are for training, as the one of Keras' layers.
TRAINING = "training"


def read(text: str) -> Tuple[str, bool]:
    """(name of the function, whether it takes a batch instead of a row) of the option's value. ValueError."""
    name = text[: -len(BATCH)] if text.endswith(BATCH) else text
    if not name.isidentifier():
        raise ValueError("the name of a function, such as decode, or decode:batch for one that takes batches")
    return name, name != text


def for_rows(function: Transform, training: bool) -> Transform:
    """The function, or a layer of Keras, for rows of training or others."""
    try:
        takes_training = TRAINING in inspect.signature(getattr(function, "call", function)).parameters
    except (TypeError, ValueError):  # one of C
        takes_training = False
    return functools.partial(function, **{TRAINING: training}) if takes_training else function


def applied(tf: TensorFlow, function: Transform, by_batch: bool, features: Features) -> Features:
    """What the function makes of the features of a batch: a row after the other, unless it takes batches."""
    if by_batch:
        return _present(function(features))
    row = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape[1:], tensor.dtype), features)
    outputs = _present(tf.function(function).get_concrete_function(row).structured_outputs)
    kinds = tf.nest.map_structure(lambda output: tf.TensorSpec(output.shape, output.dtype), outputs)
    return tf.map_fn(function, features, fn_output_signature=kinds)


def _present(outputs: Features) -> Features:
    if outputs is None:
        raise TypeError("it returns None, and not what the model takes")
    return outputs


def mapped(tf: TensorFlow, dataset: Dataset, function: Transform, by_batch: bool) -> Dataset:
    """The dataset of batches with transformed features, several batches at once and in their order."""

    def transformed(features: Features, *targets: Any) -> Any:
        outputs = applied(tf, function, by_batch, features)
        return (outputs, *targets) if targets else outputs

    return dataset.map(transformed, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
