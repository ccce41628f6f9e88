"""Layers while a step is tried: what Keras does to rows is known, and what the cell's own code does is found out.

Keras' layers are called as in inference, so that neither dropout nor BatchNormalization makes a difference. Those of
the cell are called as the step calls them: they may look at the whole batch in training alone.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable

from ..keras_types import Layer, is_of_keras
from .cell_code import has_code_of_the_cell
from .patching import patched


def layers_in_trial(layer_class: Any, training: bool) -> contextlib.AbstractContextManager[None]:
    """layer_class: Keras' class of layers. training: of the cell's layers; without it, all are as in inference."""
    called_as_in_inference: dict[int, bool] = {}

    def trying(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(layer: Layer, *args: Any, **kwargs: Any) -> Any:
            if id(layer) not in called_as_in_inference:
                called_as_in_inference[id(layer)] = not training or _is_known(layer)
            if called_as_in_inference[id(layer)] and (kwargs.get("training") or (training and _takes_training(layer))):
                kwargs["training"] = False
            return original(layer, *args, **kwargs)

        return call

    return patched([(layer_class, "__call__", trying)])


def _is_known(layer: Layer) -> bool:
    """Whether all of a layer is Keras', or it is a BatchNormalization, whose moments ranks exchange or report."""
    bases = [kind for kind in type(layer).__mro__ if is_of_keras(kind)]
    return any(kind.__name__ == "BatchNormalization" for kind in bases) or not has_code_of_the_cell(layer)


def _takes_training(layer: Layer) -> bool:
    """Whether the call of a layer has the argument, by the names that Keras 3 and Keras 2 have for that."""
    return bool(getattr(layer, "_call_has_training_arg", getattr(layer, "_expects_training_arg", False)))
