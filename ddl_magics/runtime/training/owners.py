"""Which models an optimizer trains: it is given variables only."""

from __future__ import annotations

import gc
from typing import Any, Sequence

from ..keras_types import Model, Variable


def owners(kind: type, variables: Sequence[Variable]) -> list[Model]:
    """The models of class `kind` that have any of `variables`, each of these once: those that contain the others.

    In the order of their first variable in `variables`.
    """
    positions = {id(variable): index for index, variable in reversed(list(enumerate(variables)))}
    candidates = []
    for model in [value for value in gc.get_objects() if issubclass(type(value), kind)]:
        indexes = {positions[id(variable)] for variable in _variables(model) if id(variable) in positions}
        if indexes:
            candidates.append((indexes, model))
    outer = [
        (indexes, model)
        for indexes, model in candidates
        if not any(model is layer for _, other in candidates if other is not model for layer in other._flatten_layers())
    ]
    outer.sort(key=lambda item: (-len(item[0]), min(item[0])))
    models: list[tuple[int, Model]] = []
    covered: set[int] = set()
    for indexes, model in outer:
        if indexes - covered:
            models.append((min(indexes), model))
            covered |= indexes
    return [model for _, model in sorted(models, key=lambda item: item[0])]


def _variables(model: Model) -> Sequence[Any]:
    return model.trainable_variables if getattr(model, "built", False) else ()
