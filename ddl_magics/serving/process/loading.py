"""A model from the folder of an export, as a function of arrays that TensorFlow has compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddl_magics.models.signature import Signature, Tensor, example_for, signature_of

#: What describes the model in the folder of an export.
DESCRIPTION = "ddl_magics.json"
#: Names of the tensors of a model that has one without a name.
INPUT, OUTPUT = "input", "output"

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """A model that has been called once.

    Attributes:
        call: name -> array of rows, for all inputs -> the same for the outputs.
        inputs: its input tensors, each with a name.
        outputs: its output tensors, each with a name.
    """

    call: Callable[[Arrays], Arrays]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @classmethod
    def load(cls, folder: Path) -> Model:
        """Read, compile and warm up the model of an export; takes seconds.

        Raises:
            ValueError: one line; the export cannot be served.
        """
        about = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if about["format"] == "saved_model":
            function, signature, example = _saved_model(folder, about)
        elif about["model"].endswith(".keras"):
            function, signature, example = _keras(folder / about["model"], about)
        else:
            raise ValueError(
                f"an export in the format {about['format']} cannot be served: use mlflow, keras or saved_model"
            )
        inputs, outputs = _named(signature.inputs, INPUT), _named(signature.outputs, OUTPUT)
        one = signature.inputs[0].name == "" and len(inputs) == 1

        def call(arrays: Arrays) -> Arrays:
            given = next(iter(arrays.values())) if one else arrays
            found = function(given)
            if isinstance(found, list | tuple):
                found = {tensor.name: each for tensor, each in zip(outputs, found, strict=True)}
            if not isinstance(found, dict):
                found = {outputs[0].name: found}
            return {name: each.numpy() for name, each in found.items()}

        model = cls(call, inputs, outputs)
        model.call(_example(example, inputs))
        return model


def _named(tensors: tuple[Tensor, ...], name: str) -> tuple[Tensor, ...]:
    return tuple(Tensor(each.name or name, each.dtype, each.shape) for each in tensors)


def _example(example: Any, inputs: tuple[Tensor, ...]) -> Arrays:
    return dict(example) if isinstance(example, dict) else {inputs[0].name: np.asarray(example)}


def _specs(signature: Signature) -> Any:
    """TensorFlow's types of the inputs: one, or a dict of them."""
    import tensorflow as tf

    def spec(tensor: Tensor) -> Any:
        dtype = "string" if tensor.dtype == "object" else tensor.dtype
        return tf.TensorSpec((None, *tensor.shape), dtype, name=tensor.name or None)

    if len(signature.inputs) == 1 and not signature.inputs[0].name:
        return spec(signature.inputs[0])
    return {tensor.name: spec(tensor) for tensor in signature.inputs}


def _keras(file: Path, about: dict[str, Any]) -> tuple[Callable[[Any], Any], Signature, Any]:
    import keras
    import tensorflow as tf

    try:
        model = keras.models.load_model(file, compile=False)
    except (TypeError, ValueError) as error:  # a class of the notebook's, or another Keras
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        missing = [line for line in lines if "Could not locate" in line]
        reason = (missing or lines or [type(error).__name__])[0].partition(". ")[0][:200]
        other = "where a class of it is the notebook's, serve its saved_model: run.export(path, 'saved_model')"
        raise ValueError(f"Keras {keras.__version__} cannot load the model ({reason}): {other}") from None
    example = example_for(model, about["inputs"]) if "example" not in about else _given(about)
    signature = signature_of(model, example)
    function = tf.function(lambda given: model(given, training=False), input_signature=[_specs(signature)])
    return function, signature, example


def _given(about: dict[str, Any]) -> Any:
    """The example of a description, which has lists for arrays."""
    dtypes = {tensor["name"]: tensor["dtype"] for tensor in about.get("signature", {}).get("inputs", ())}
    example = about["example"]
    if isinstance(example, dict):
        return {name: np.asarray(values, dtypes.get(name)) for name, values in example.items()}
    return np.asarray(example, dtypes.get(""))


def _saved_model(folder: Path, about: dict[str, Any]) -> tuple[Callable[[Any], Any], Signature, Any]:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder))
    signature = Signature(*(tuple(_tensor(each) for each in about["signature"][end]) for end in ("inputs", "outputs")))

    def function(given: Any, kept: Any = loaded) -> Any:
        return kept.serve(given)

    return function, signature, _given(about)


def _tensor(described: dict[str, Any]) -> Tensor:
    return Tensor(described["name"], described["dtype"], tuple(described["shape"]))
