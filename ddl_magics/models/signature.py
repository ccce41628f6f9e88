"""What a model takes and gives: the tensors of its inputs and outputs, with an example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Union

import numpy as np

from ddl_magics.errors import CannotExport

#: Rows as a model takes them: an array, or a dict of arrays.
Example = Union["np.ndarray[Any, Any]", dict[str, "np.ndarray[Any, Any]"]]

_LIKE = "example= with a row of the model's inputs, an array or a dict of arrays"


@dataclass(frozen=True)
class Tensor:
    """shape: of one row. name: "" where there is one tensor without a name."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def to_json(self) -> dict[str, Any]:
        """{"inputs": [{"name", "dtype", "shape"}], "outputs": the same}."""
        return asdict(self)


def signature_of(model: Any, example: Example) -> Signature:
    """What the model takes and gives, found by a call with the example, which also builds the model.

    Raises:
        CannotExport: the model cannot be called with the example.
    """
    try:
        outputs = model.predict_on_batch(example)
    except Exception as error:  # of TensorFlow and Keras, of many kinds
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise CannotExport(f"the model cannot be called with its example: {reason}; give {_LIKE}") from None
    if isinstance(outputs, list | tuple):
        names = list(getattr(model, "output_names", None) or map(str, range(len(outputs))))
        outputs = dict(zip(names, outputs, strict=False))
    return Signature(_tensors(example), _tensors(outputs))


def _tensors(values: Any) -> tuple[Tensor, ...]:
    named = values.items() if isinstance(values, Mapping) else [("", values)]
    arrays = [(name, np.asarray(value)) for name, value in named]
    return tuple(Tensor(name, _dtype(array), tuple(array.shape[1:])) for name, array in arrays)


def _dtype(array: np.ndarray[Any, Any]) -> str:
    return "object" if array.dtype.kind in "OSU" else array.dtype.name


def example_for(model: Any, inputs: Mapping[str, Any] | None) -> Example:
    """One row of zeros, or of empty text, as the model takes it.

    inputs: how columns become inputs, for a model that does not know its inputs itself.

    Raises:
        CannotExport: neither is known.
    """
    own = getattr(getattr(model, "_functional", None) or model, "_inputs_struct", None)
    if own is not None:
        if isinstance(own, list | tuple):
            own = own[0] if len(own) == 1 else {tensor.name: tensor for tensor in own}
        return {name: _zeros_like(part) for name, part in own.items()} if isinstance(own, dict) else _zeros_like(own)
    if inputs is None or inputs["shapes"] is None:
        raise CannotExport(f"it is not known what the model takes: give {_LIKE}")
    rows = [inputs["window"]["length"]] if "window" in inputs else []
    arrays = [_zeros([*rows, *shape], use) for shape, use in zip(inputs["shapes"], inputs["uses"], strict=False)]
    features = inputs["features"]
    return arrays[features] if isinstance(features, int) else {name: arrays[i] for name, i in features.items()}


def _zeros_like(tensor: Any) -> np.ndarray[Any, Any]:
    return _zeros([size or 1 for size in tensor.shape[1:]], tensor.dtype)


def _zeros(shape: Any, dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "string":
        return np.full((1, *shape), "", object)
    return np.zeros((1, *shape), "float32" if dtype == "floatx" else dtype)
