"""What is watched of a model's input or output: numbers and categories, each of which gets a distribution.

A tensor of a row becomes one or more of them, by NumPy at training time, by Spark SQL in the stream (counting.py).
"""

from __future__ import annotations

from typing import Any, List, Sequence, TypedDict

import numpy as np

#: A vector of more elements counts as its mean: the pixels of an image say nothing one by one.
MAX_ELEMENTS = 256
#: A model's output of so many classes at most is watched by which of them is the largest.
MAX_CLASSES = 256


class Tensor(TypedDict):
    """A tensor of the model as a logged row has it.

    name: "" for the only one. depth: levels of lists around the values of a row. view: what is watched of it: "scalar";
    "vector": each element; "mean" of all elements; "text"; "largest": the mean, and which element is the largest.
    windowed: the first level is the rows of a window, of which the last counts. elements: of a vector. named: of each
    thing watched.
    """

    name: str
    depth: int
    view: str
    windowed: bool
    elements: int
    named: List[str]


def of_input(name: str, column: str, shape: Sequence[int], text: bool, windowed: bool) -> Tensor | None:
    """How an input is watched; None for what is not. column: the first that it is made of. shape: of a row of data."""
    view, elements, names = "mean", 1, ["mean of %s" % column]
    if text and shape:
        return None
    if not shape:
        view, names = "text" if text else "scalar", [column]
    elif len(shape) == 1 and shape[0] <= MAX_ELEMENTS:
        view, elements = "vector", int(shape[0])
        names = ["%s[%d]" % (column, index) for index in range(elements)]
    depth = len(shape) + int(windowed)
    return Tensor(name=name, depth=depth, view=view, windowed=windowed, elements=elements, named=names)


def with_columns(tensor: Tensor, columns: Sequence[str]) -> Tensor:
    """The same with the names of the columns that it is made of, of which each is an element."""
    if len(columns) != len(tensor["named"]):
        return tensor
    return Tensor(**{**tensor, "named": list(columns)})


def of_output(name: str, shape: Sequence[int]) -> Tensor:
    """How an output is watched. shape: of a row."""
    depth, label = len(shape), name or "output"
    size = int(np.prod(shape)) if shape else 1
    if not shape:
        return Tensor(name=name, depth=depth, view="scalar", windowed=False, elements=1, named=[label])
    if list(shape) == [1]:
        return Tensor(name=name, depth=depth, view="vector", windowed=False, elements=1, named=[label])
    if len(shape) == 1 and size <= MAX_CLASSES:
        names = ["%s: mean" % label, "%s: largest" % label]
        return Tensor(name=name, depth=depth, view="largest", windowed=False, elements=size, named=names)
    return Tensor(name=name, depth=depth, view="mean", windowed=False, elements=1, named=["%s: mean" % label])


def values(tensor: Tensor, array: Any) -> List[np.ndarray]:
    """What is watched of the rows of an array (rows, ...), each (rows,): floats, or objects for text."""
    rows = np.asarray(array)
    if tensor["windowed"]:
        rows = rows[:, -1]
    view = tensor["view"]
    if view == "text":
        return [rows]
    flat = rows.reshape(len(rows), -1).astype(np.float64)
    if view in ("scalar", "vector"):
        return list(flat.T)
    if view == "largest":
        return [flat.mean(axis=1), flat.argmax(axis=1).astype(np.float64)]
    return [flat.mean(axis=1)]
