"""Predictions in this process: arrays or a pandas DataFrame in, a pandas DataFrame out. No Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddl_magics.clusters.local_spark import is_connect
from ddl_magics.errors import CannotScore


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
    import numpy as np
    import pandas as pd

    inputs = _numbers(rows, features) if is_pandas(rows) else rows
    predicted = model.predict(inputs, batch_size=batch_size, verbose=0)
    if isinstance(predicted, Mapping):
        columns = {f"{output}_{name}": values for name, values in predicted.items()}
    elif isinstance(predicted, list | tuple):
        columns = {f"{output}_{name}": values for name, values in zip(model.output_names, predicted, strict=True)}
    else:
        columns = {output: predicted}
    frame = rows.copy() if is_pandas(rows) else pd.DataFrame(index=range(len(next(iter(columns.values())))))
    for name, values in columns.items():
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
