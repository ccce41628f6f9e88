"""Which models an optimizer trains: it is given variables only."""

from __future__ import annotations

import gc
from typing import Any, Sequence

from ..keras_types import Model, Variable


def owners(kind: type, variables: Sequence[Variable]) -> list[Model]:
    """The models of class `kind` that have any of `variables`, each of these once: those that contain the others.

    In the order of their first variable in `variables`.
    """
    place = {id(variable): index for index, variable in reversed(list(enumerate(variables)))}
    found = []
    for model in [one for one in gc.get_objects() if issubclass(type(one), kind)]:
        own = {place[id(variable)] for variable in _variables(model) if id(variable) in place}
        if own:
            found.append((own, model))
    outer = [(own, model) for own, model in found if not any(_contains(other, model) for _, other in found)]
    outer.sort(key=lambda each: (-len(each[0]), min(each[0])))
    chosen: list[tuple[int, Model]] = []
    covered: set[int] = set()
    for own, model in outer:
        if own - covered:
            chosen.append((min(own), model))
            covered |= own
    return [model for _, model in sorted(chosen, key=lambda each: each[0])]


def _variables(model: Model) -> Sequence[Any]:
    return model.trainable_variables if getattr(model, "built", False) else ()


def _contains(outer: Model, inner: Model) -> bool:
    return outer is not inner and any(layer is inner for layer in outer._flatten_layers())
