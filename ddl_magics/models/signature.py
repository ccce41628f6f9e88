"""What a model takes and gives: the tensors of its inputs and outputs, with an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import numpy as np

from ddl_magics.errors import CannotExport
from ddl_magics.runtime.data.records import is_ragged
from ddl_magics.wording import first_line

#: Rows as a model takes them: an array, or a dict of arrays.
Example = Union["np.ndarray[Any, Any]", dict[str, "np.ndarray[Any, Any]"]]

_LIKE = "example= with a row of the model's inputs, an array or a dict of arrays"


@dataclass(frozen=True)
class Tensor:
    """shape: of one row; None for a length that the model leaves open. name: "" for one tensor without a name."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Signature:
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def signature_of(model: Any, example: Example, inputs: Mapping[str, Any] | None = None) -> Signature:
    """What the model takes and gives, found by a call with the example, which also builds the model.

    inputs: how columns become inputs: where --pad has made a length, the model takes no other.

    Raises:
        CannotExport: the model cannot be called with the example.
    """
    try:
        outputs = model.predict_on_batch(example)
    except Exception as error:  # of TensorFlow and Keras, of many kinds
        raise CannotExport(f"the model cannot be called with its example: {first_line(error)}; give {_LIKE}") from None
    symbolic = getattr(_functional(model), "_outputs_struct", None)
    if isinstance(outputs, list | tuple):
        names = list(getattr(model, "output_names", None) or map(str, range(len(outputs))))
        outputs, symbolic = (values and dict(zip(names, values, strict=False)) for values in (outputs, symbolic))
    tensors = _tensors(example, _own_inputs(model))
    tensors = tuple(replace(tensor, shape=_sizes(tensor.name, tensor.shape, inputs)) for tensor in tensors)
    return Signature(tensors, _tensors(outputs, symbolic))


def input_specs(model: Any, example: Example) -> list[Any] | None:
    """TensorFlow's types of the inputs of a model that does not know them itself, like the example; else None.

    Keras would take all for numbers of the type that the model computes with: an id above 2^24 would be another one.
    """
    if _own_inputs(model) is not None:
        return None
    import tensorflow as tf

    def spec(tensor: Any) -> Any:
        array = np.asarray(tensor)
        kinds = {"f": model.variable_dtype, "O": "string", "S": "string", "U": "string"}
        return tf.TensorSpec((None, *array.shape[1:]), kinds.get(array.dtype.kind, array.dtype))

    return [{name: spec(tensor) for name, tensor in example.items()} if isinstance(example, dict) else spec(example)]


def _functional(model: Any) -> Any:
    """The functional model in a Sequential one, or the model."""
    return getattr(model, "_functional", None) or model


def _own_inputs(model: Any) -> Any:
    """Keras' tensors of the inputs, one or a dict of them; None for a model that does not know them."""
    inputs = getattr(_functional(model), "_inputs_struct", None)
    if isinstance(inputs, list | tuple):
        return inputs[0] if len(inputs) == 1 else {tensor.name: tensor for tensor in inputs}
    return inputs


def _tensors(values: Any, symbolic: Any) -> tuple[Tensor, ...]:
    """symbolic: Keras' tensors of the same, or None."""
    if not isinstance(values, Mapping):
        values, symbolic = {"": values}, symbolic if symbolic is None else {"": symbolic}
    arrays = {name: np.asarray(value) for name, value in values.items()}
    shapes = {name: (array if symbolic is None else symbolic[name]).shape[1:] for name, array in arrays.items()}
    return tuple(Tensor(name, _dtype(array), tuple(shapes[name])) for name, array in arrays.items())


def _sizes(name: str, shape: Sequence[int | None], inputs: Mapping[str, Any] | None) -> tuple[int | None, ...]:
    """Of a row of a model's input: the length of --pad where the model leaves its own open."""
    if inputs is None or not shape or shape[-1] is not None:
        return tuple(shape)
    features = inputs["features"]
    indices = {"": features} if isinstance(features, int) else features
    index = next(iter(indices.values())) if len(indices) == 1 else indices.get(name)
    column = {} if index is None else inputs["columns"][inputs["tensors"][index][0]]
    return (*shape[:-1], column.get("pad"))


def _dtype(array: np.ndarray[Any, Any]) -> str:
    return "object" if array.dtype.kind in "OSU" else array.dtype.name


def example_for(model: Any, inputs: Mapping[str, Any] | None) -> Example:
    """One row of zeros, or of empty text, as the model takes it.

    inputs: how columns become inputs, for a model that does not know its inputs itself, or leaves a length open.

    Raises:
        CannotExport: neither is known.
    """
    inputs_of_model = _own_inputs(model)
    if inputs_of_model is not None:
        return (
            {name: _zeros_like(name, tensor, inputs) for name, tensor in inputs_of_model.items()}
            if isinstance(inputs_of_model, dict)
            else _zeros_like("", inputs_of_model, inputs)
        )
    if inputs is None or inputs["shapes"] is None:
        raise CannotExport(f"it is not known what the model takes: give {_LIKE}")
    if any(map(is_ragged, inputs["uses"])):
        raise CannotExport(
            f"it takes lists of several lengths, as a ragged tensor: train it with --pad COLUMN=LENGTH, or give {_LIKE}"
        )
    rows = [inputs["window"]["length"]] if "window" in inputs else []
    arrays = [_zeros([*rows, *shape], use) for shape, use in zip(inputs["shapes"], inputs["uses"], strict=False)]
    features = inputs["features"]
    return arrays[features] if isinstance(features, int) else {name: arrays[i] for name, i in features.items()}


def _zeros_like(name: str, tensor: Any, inputs: Mapping[str, Any] | None) -> np.ndarray[Any, Any]:
    return _zeros([size or 1 for size in _sizes(name, tensor.shape[1:], inputs)], tensor.dtype)


def _zeros(shape: Any, dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "string":
        return np.full((1, *shape), "", object)
    return np.zeros((1, *shape), "float32" if dtype == "floatx" else dtype)
