"""Models of Keras 2 travel as Keras saves them, each for itself: what two of them share would be there twice."""

from __future__ import annotations

import sys
from typing import Any, Dict, Tuple

_PACKAGES = ("keras.src.engine", "tf_keras.src.engine")
_SHARED = "the cell uses another model or layer with its weights or optimizer, and Keras 2 saves each for itself"


class Owners:
    """Which models and layers in a pickle have a variable or an optimizer."""

    def __init__(self) -> None:
        self._models: Dict[int, Any] = {}
        self._layers: Dict[int, Any] = {}
        self._model_classes = _classes("training", "Model")
        self._layer_classes = _classes("base_layer", "Layer")

    def note(self, value: Any) -> None:
        """TypeError for a model or a layer of Keras 2 that shares its state with a model of Keras 2 noted before, and
        for a model that shares it with a layer."""
        if not isinstance(value, self._layer_classes):
            return
        is_model = isinstance(value, self._model_classes)
        shared_with = [self._models, self._layers] if is_model else [self._models]
        for item in _state(value):
            if any(owners.get(id(item), value) is not value for owners in shared_with):
                raise TypeError(_SHARED)
            (self._models if is_model else self._layers)[id(item)] = value


def _classes(module: str, name: str) -> Tuple[type, ...]:
    """Those of the packages of Keras 2 that are imported: none in most processes."""
    modules = [sys.modules.get("%s.%s" % (package, module)) for package in _PACKAGES]
    return tuple(getattr(module, name) for module in modules if module is not None)


def _state(value: Any) -> Any:
    try:
        variables = list(value.variables)
    except ValueError:  # it has not seen an input yet
        variables = []
    optimizer = getattr(value, "optimizer", None)
    return variables if optimizer is None else [*variables, optimizer]
