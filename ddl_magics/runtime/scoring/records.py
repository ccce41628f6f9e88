"""What travels to the executors beside a model, and back from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, TypedDict

from ..data.records import Features, Inputs

if TYPE_CHECKING:
    import numpy as np


class Plan(TypedDict):
    """How rows are scored.

    indices: of each column of `inputs`, its index in a row. batch_rows: rows that the model is called with at once.
    lenient: whether a row that cannot be read gets no prediction, instead of an error.
    """

    inputs: Inputs
    indices: list[int]
    batch_rows: int
    lenient: bool


class Labels(TypedDict):
    """Which tensors of a plan's `inputs` are the label and the weight; those of the features come first."""

    label: Features
    weight: Optional[int]


class OutputCounts(TypedDict):
    """What an output's values and its labels were, of some rows. None: they are not of that kind.

    errors: [values, sum of |error|, sum of error squared, values whose label is not 0, sum of |error / label| of
    these]. confusion: {label * classes + class of the largest value: rows}. scores: of values within 0..1, rows by
    [class, whether the row is of it, bin of the value]; an output of one value has the class 1 alone. classes: of the
    labels.
    """

    errors: Optional[List[float]]
    confusion: Optional[Dict[int, int]]
    scores: Optional["np.ndarray[Any, Any]"]
    classes: int


class Partial(TypedDict):
    """What the evaluation of a partition has found.

    states: of each variable of the model's metrics, what its rows have added to it; of no rows, none. gathered: the
    names of metrics that do not add up. sample: (features, label, weight) of one row, where there is one. outputs: by
    name, "" for the only one. nan: the labels that hold NaN.
    """

    rows: int
    states: "List[np.ndarray[Any, Any]]"
    gathered: List[str]
    sample: Optional[bytes]
    outputs: Dict[str, OutputCounts]
    nan: List[str]


class Evaluated(TypedDict):
    """metrics: as Keras' `evaluate` returns them as a dict; a list for a metric with a value for each class. notices:
    hints for the user, a line each.
    """

    metrics: Dict[str, Any]
    rows: int
    outputs: Dict[str, OutputCounts]
    notices: List[str]
