"""What of a model is code of the cell, and what that code mentions."""

from __future__ import annotations

import types
from typing import Any, Callable

import numpy as np

from ..keras_types import Layer, Model, Optimizer, inner_optimizer, is_along_rows, is_of_keras

#: Where layers keep functions that they are given.
_ACTIVATIONS = ("activation", "recurrent_activation")

#: The methods of Keras 2's optimizers that make gradients.
_MAKING = {"compute_gradients", "_compute_gradients", "_get_gradients", "minimize"}


def has_code_of_the_cell(layer: Layer) -> bool:
    """Whether a layer or a model is made of anything else than Keras' layers, which compute each row by itself.

    So do not those whose axis is that of the rows, and those that call a function of the cell.
    """
    layers = [layer, *layer._flatten_layers()]
    components = layers + [
        operation for layer_of_model in layers for operation in getattr(layer_of_model, "operations", ())
    ]
    return any(
        not is_of_keras(type(component))
        or _is_operation(type(component))
        or is_along_rows(getattr(component, "axis", getattr(component, "axes", None)))
        or any(is_of_cell(getattr(component, name, None)) for name in _ACTIVATIONS)
        for component in components
    )


def keeps_metrics(model: Model) -> bool:
    """Whether a model, or a layer of it, keeps metrics of its own, which it was not compiled with."""
    return any(getattr(layer, "_metrics", None) for layer in model._flatten_layers())


def adds_losses(model: Model) -> bool:
    """Whether a layer of a model, or the model itself, has code that adds losses."""
    layers = [model, *model._flatten_layers()]
    if any(getattr(layer, "activity_regularizer", None) is not None for layer in layers):
        return True
    if any(type(layer).__name__ == "AddLoss" for layer in layers):  # of Keras 2, for losses of symbolic tensors
        return True
    return any(_mentions(kind, "add_loss") for kind in {kind for layer in layers for kind in type(layer).__mro__})


def clips(step: Callable[..., Any]) -> bool:
    """Whether the code of a step calls one of the functions that clip tensors."""
    names = getattr(getattr(step, "__code__", None), "co_names", ())
    return any(name.startswith("clip_by_") for name in names)


def makes_gradients(optimizer: Optimizer) -> bool:
    """Whether an optimizer has code of the cell that makes gradients, of a rank's own rows, as with Keras 2."""
    return any(
        _MAKING & vars(kind).keys() for kind in type(inner_optimizer(optimizer)).__mro__ if not is_of_keras(kind)
    )


def uses_numpy(function: Callable[..., Any]) -> bool:
    """Whether the code of a function of the cell calls NumPy's."""
    code, namespace = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    return code is not None and any(_uses(code, name) for name, value in namespace.items() if value is np)


def is_of_cell(function: Any) -> bool:
    """Whether a function is neither Keras' nor TensorFlow's."""
    module = str(getattr(function, "__module__", None) or type(function).__module__)
    return callable(function) and module.partition(".")[0] not in ("keras", "tensorflow")


def _is_operation(kind: type) -> bool:
    """Whether it is any function: a Lambda layer, or what a functional model calls on Keras' tensors."""
    return ".ops." in kind.__module__ or "Lambda" in kind.__name__


def _mentions(kind: type, name: str) -> bool:
    """Whether the code of a class that is not Keras' mentions an attribute."""
    if is_of_keras(kind):
        return False
    functions = [getattr(value, "__wrapped__", value) for value in vars(kind).values()]
    return any(_uses(function.__code__, name) for function in functions if hasattr(function, "__code__"))


def _uses(code: types.CodeType, name: str) -> bool:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return name in code.co_names or any(_uses(constant, name) for constant in inner)
