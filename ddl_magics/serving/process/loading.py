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
#: Default names of an unnamed input and output.
INPUT, OUTPUT = "input", "output"

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """A loaded model, warmed up by one call.

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
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if description["format"] == "saved_model":
            function, signature, example = _saved_model(folder, description)
        elif description["model"].endswith(".keras"):
            function, signature, example = _keras(folder / description["model"], description)
        else:
            raise ValueError(
                f"an export in the format {description['format']} cannot be served: use mlflow, keras or saved_model"
            )
        inputs, outputs = _with_names(signature.inputs, INPUT), _with_names(signature.outputs, OUTPUT)
        single_unnamed = signature.inputs[0].name == "" and len(inputs) == 1

        def call(arrays: Arrays) -> Arrays:
            argument = next(iter(arrays.values())) if single_unnamed else arrays
            result = function(argument)
            if isinstance(result, list | tuple):
                result = {tensor.name: value for tensor, value in zip(outputs, result, strict=True)}
            if not isinstance(result, dict):
                result = {outputs[0].name: result}
            return {name: value.numpy() for name, value in result.items()}

        model = cls(call, inputs, outputs)
        model.call(dict(example) if isinstance(example, dict) else {inputs[0].name: np.asarray(example)})
        return model


def _with_names(tensors: tuple[Tensor, ...], default_name: str) -> tuple[Tensor, ...]:
    return tuple(Tensor(tensor.name or default_name, tensor.dtype, tensor.shape) for tensor in tensors)


def _specs(signature: Signature) -> Any:
    """One `tf.TensorSpec`, or a dict of them by input name."""
    import tensorflow as tf

    def spec(tensor: Tensor) -> Any:
        dtype = "string" if tensor.dtype == "object" else tensor.dtype
        return tf.TensorSpec((None, *tensor.shape), dtype, name=tensor.name or None)

    if len(signature.inputs) == 1 and not signature.inputs[0].name:
        return spec(signature.inputs[0])
    return {tensor.name: spec(tensor) for tensor in signature.inputs}


def _keras(file: Path, description: dict[str, Any]) -> tuple[Callable[[Any], Any], Signature, Any]:
    import keras
    import tensorflow as tf

    try:
        model = keras.models.load_model(file, compile=False)
    except (TypeError, ValueError) as error:  # a class of the notebook's, or another Keras
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        missing = [line for line in lines if "Could not locate" in line]
        reason = (missing or lines or [type(error).__name__])[0].partition(". ")[0][:200]
        remedy = "if it has a class or Lambda layer of the notebook's, serve run.export(path, 'saved_model')"
        raise ValueError(f"Keras {keras.__version__} cannot load the model ({reason}): {remedy}") from None
    example = _stored_example(description) if "example" in description else example_for(model, description["inputs"])
    signature = signature_of(model, example, description["inputs"])
    function = tf.function(lambda inputs: model(inputs, training=False), input_signature=[_specs(signature)])
    return function, signature, example


def _stored_example(description: dict[str, Any]) -> Any:
    """The example of an export, whose description stores arrays as lists."""
    dtypes = {tensor["name"]: tensor["dtype"] for tensor in description.get("signature", {}).get("inputs", ())}
    example = description["example"]
    if isinstance(example, dict):
        return {name: np.asarray(values, dtypes.get(name)) for name, values in example.items()}
    return np.asarray(example, dtypes.get(""))


def _saved_model(folder: Path, description: dict[str, Any]) -> tuple[Callable[[Any], Any], Signature, Any]:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder))
    signature = Signature(*(tuple(map(_tensor, description["signature"][side])) for side in ("inputs", "outputs")))

    def function(inputs: Any, model: Any = loaded) -> Any:
        return model.serve(inputs)

    return function, signature, _stored_example(description)


def _tensor(described: dict[str, Any]) -> Tensor:
    return Tensor(described["name"], described["dtype"], tuple(described["shape"]))
