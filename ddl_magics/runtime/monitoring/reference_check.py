"""The form of a stored reference: an export, and its reference, may be a stranger's.

Its names and numbers become expressions of Spark SQL, whose size depends on them.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping

from .reference import VERSION, Reference
from .watched import MAX_CLASSES, MAX_ELEMENTS

#: Of a file.
MAX_BYTES = 32 << 20
#: Things watched, levels of lists, edges of bins, and characters of a name or a value; those of a run are fewer.
MAX_WATCHED, MAX_DEPTH, MAX_EDGES, MAX_CHARACTERS = 4096, 16, 64, 10_000
_MOST_ROWS = 2**53

#: View of a tensor -> how many things are watched of so many elements.
_WATCHED: Mapping[str, Callable[[int], int]] = {
    "scalar": lambda _: 1,
    "text": lambda _: 1,
    "mean": lambda _: 1,
    "largest": lambda _: 2,
    "vector": lambda elements: elements,
}


def checked(stored: Any) -> Reference:
    """The reference in a JSON value. Raises ValueError where it is none of this version."""
    try:
        fits = _is_reference(stored)
    except (KeyError, TypeError):
        fits = False
    if not fits:
        raise ValueError("no reference of this version")
    reference: Reference = stored
    return reference


def _is_reference(stored: Any) -> bool:
    tensors = [*_list(stored["inputs"]), *_list(stored["outputs"])]
    return (
        stored["v"] == VERSION
        and _is_text(stored["run"])
        and _is_count(stored["rows"])
        and all(map(_is_tensor, tensors))
        and len(_list(stored["features"])) == sum(len(tensor["named"]) for tensor in tensors) <= MAX_WATCHED
        and bool(tensors)
        and all(map(_is_feature, stored["features"]))
    )


def _is_tensor(tensor: Any) -> bool:
    elements, depth, named = tensor["elements"], tensor["depth"], _list(tensor["named"])
    levels = 0 if tensor["view"] in ("scalar", "text") else 1
    return (
        _is_text(tensor["name"])
        and type(tensor["windowed"]) is bool
        and type(depth) is int
        and levels + tensor["windowed"] <= depth <= MAX_DEPTH
        and type(elements) is int
        and 1 <= elements <= max(MAX_ELEMENTS, MAX_CLASSES)
        and tensor["view"] in _WATCHED
        and len(named) == _WATCHED[tensor["view"]](elements)
        and all(map(_is_text, named))
    )


def _is_feature(feature: Any) -> bool:
    edges, counts, labels = _list(feature["edges"]), _list(feature["counts"]), feature["labels"]
    return (
        _is_text(feature["name"])
        and feature["kind"] in ("number", "text")
        and all(map(_is_number, edges))
        and all(below <= above for below, above in zip(edges, edges[1:]))
        and len(edges) <= MAX_EDGES
        and len(counts) == (len(edges) + 1 if counts else 0)
        and all(map(_is_count, [*counts, feature["nulls"]]))
        and (labels is None or (len(_list(labels)) == len(counts) and all(map(_is_text, labels))))
        and all(feature[name] is None or _is_number(feature[name]) for name in ("mean", "std"))
    )


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError("no list")
    return value


def _is_text(value: Any) -> bool:
    return type(value) is str and len(value) <= MAX_CHARACTERS


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_ROWS


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1e308 and math.isfinite(value)
