"""Predictions in this process: arrays or a pandas DataFrame in, a pandas DataFrame out. No Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddl_magics.clusters.local_spark import is_connect
from ddl_magics.errors import CannotScore

if TYPE_CHECKING:
    from ddl_magics.runtime.data.records import Inputs
    from ddl_magics.runtime.data.transform import Transform


def is_pandas(rows: Any) -> bool:
    """Whether the rows are a pandas DataFrame."""
    from ddl_magics.runtime.data import columns  # it imports NumPy

    return columns.is_pandas(rows)


def is_spark(rows: Any) -> bool:
    """Whether the rows are a DataFrame of Spark, or of Spark Connect."""
    from ddl_magics.runtime.data import columns

    return columns.is_spark(rows) or is_connect(rows)


def predict_here(
    model: Any, rows: Any, features: Sequence[str] | None = None, output: str = "prediction", batch_size: int = 1024
) -> Any:
    """A pandas DataFrame with the columns of `rows`, if it has some, and the predictions of a Keras model.

    Args:
        model: the model.
        rows: what its `predict` takes: an array, a list or a dict of arrays; or a pandas DataFrame.
        features: the columns of a DataFrame that are the model's input, in this order; if left out, all.
        output: the new column. It holds a number where the model makes one a row, else an array; a model with several
            outputs adds `prediction_NAME` for each.
        batch_size: rows that the model is called with at once.

    Raises:
        CannotScore: a column is missing, or is no numbers.
    """
    inputs = _numbers(rows, features) if is_pandas(rows) else rows
    predicted = model.predict(inputs, batch_size=batch_size, verbose=0)
    if isinstance(predicted, list | tuple):
        predicted = dict(zip(model.output_names, predicted, strict=True))
    return _beside(rows, predicted if isinstance(predicted, Mapping) else {"": predicted}, output)


def predict_columns_here(
    model: Any,
    rows: Any,
    inputs: Inputs,
    output: str = "prediction",
    batch_size: int = 1024,
    transform: Transform | None = None,
    transform_batches: bool = False,
) -> Any:
    """The same of a pandas DataFrame whose columns become tensors as those of --data did when the model was trained.

    Args:
        model, rows, output, batch_size: as for `predict_here`.
        inputs: how they become tensors.
        transform, transform_batches: the function of --transform, and whether it takes batches.

    Raises:
        CannotScore: a column is missing or of another kind, a row cannot be read, or the model takes windows of rows.
    """
    from ddl_magics.runtime.data.columns import DataError
    from ddl_magics.runtime.scoring.pandas_rows import predictions
    from ddl_magics.runtime.scoring.predictor import prepared

    if transform is not None:
        inputs = {**inputs, "transform": prepared(transform, transform_batches)}
    try:
        return _beside(rows, predictions(model, rows, inputs, batch_size), output)
    except DataError as error:
        raise CannotScore(str(error)) from None


def _beside(rows: Any, outputs: Mapping[str, Any], output: str) -> Any:
    """A pandas DataFrame of the rows, if they are one, and a model's outputs: `output`, or `output_NAME` of several."""
    import numpy as np
    import pandas as pd

    frame = rows.copy() if is_pandas(rows) else pd.DataFrame(index=range(len(next(iter(outputs.values())))))
    for output_name, values in outputs.items():
        name = f"{output}_{output_name}" if output_name else output
        if name in frame:
            raise CannotScore(f"the DataFrame has a column {name!r}: name another with output=")
        array = np.asarray(values)
        frame[name] = array.reshape(len(frame)) if array.size == len(frame) else list(array)
    return frame


def _numbers(frame: Any, features: Sequence[str] | None) -> Any:
    """The columns of a pandas DataFrame as an array of float32."""
    names = list(features or frame.columns)
    missing = [name for name in names if name not in frame]
    if missing:
        raise CannotScore(f"the DataFrame has no column {missing[0]!r}")
    try:
        return frame[names].to_numpy(dtype="float32")
    except (TypeError, ValueError):
        raise CannotScore(
            "not all columns are numbers: name those of the model's input, features=['a', 'b'], or give what its "
            "predict takes"
        ) from None
