"""The rows of a pandas DataFrame, scored in this process as Spark's executors score those of a Spark DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

import numpy as np

from ..data import packing
from ..data.columns import DataError, pandas_columns, pandas_values
from . import scorer
from .predictor import FRAME, bounded, columns_in_frame

if TYPE_CHECKING:
    from ..data.records import DataFrame, Inputs


def predictions(model: Any, frame: DataFrame, inputs: Inputs, batch_rows: int) -> dict[str, np.ndarray]:
    """The model's outputs by name, each of shape (rows, ...); a single one has the name "".

    inputs: how the run that trained the model made its tensors of columns, with `transform` as `prepared` makes it.

    Raises:
        DataError: one line; a column is missing or of another kind, a row cannot be read, or the input is windows.
    """
    outputs: dict[str, list[np.ndarray]] = {}
    for arrays in _arrays(model, frame, inputs, bounded(batch_rows, inputs["shapes"] or [[]])):
        for name, array in scorer.call(model, arrays, inputs):
            outputs.setdefault(name, []).append(array)
    return {name: np.concatenate(parts) for name, parts in outputs.items()}


def features(model: Any, frame: DataFrame, inputs: Inputs) -> Any:
    """What the model is called with for all rows at once; the arguments and errors are as for `predictions`."""
    (arrays,) = _arrays(model, frame, inputs, max(1, len(frame)))
    return scorer.transformed(scorer.as_inputs(arrays, inputs, scorer.weights_dtype(model)), inputs)


def _arrays(model: Any, frame: DataFrame, inputs: Inputs, batch_rows: int) -> Iterator[scorer.Arrays]:
    """The arrays of `batch_rows` rows at a time."""
    if "window" in inputs:
        raise DataError("the model takes windows of several rows, which Spark makes: give a Spark DataFrame")
    if not len(frame):
        raise DataError("%s has no rows" % FRAME)
    columns = columns_in_frame(inputs["columns"], frame)
    series = list(pandas_columns(frame, [column["name"] for column in columns]))
    for start in range(0, len(frame), batch_rows):
        values = [pandas_values(column.iloc[start : start + batch_rows]) for column in series]
        try:
            arrays = packing.column_arrays(values, columns, inputs["tensors"])
            yield scorer.checked(arrays, {**inputs, "columns": columns}, scorer.weights_dtype(model))
        except ValueError as error:
            raise DataError("%s cannot be scored: %s" % (FRAME, error)) from None
