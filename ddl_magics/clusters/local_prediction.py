"""Predictions and metrics in this process, of arrays or a pandas DataFrame. No Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddl_magics.clusters.local_spark import is_connect
from ddl_magics.errors import CannotScore
from ddl_magics.wording import first_line, nearest

if TYPE_CHECKING:
    from ddl_magics.dashboard.evaluation import Evaluation
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


def evaluate_here(
    model: Any,
    rows: Any,
    label: Any,
    features: Sequence[str] | None = None,
    weight: Any = None,
    batch_size: int = 1024,
    inputs: Inputs | None = None,
    transform: Transform | None = None,
    transform_batches: bool = False,
) -> Evaluation:
    """The metrics of a Keras model over rows of this process, as its own `evaluate` has them.

    Args:
        model, features, batch_size: as for `predict_here`.
        rows: as for `predict_here`.
        label: an array, or a dict of them; of a DataFrame also a column, or `"y1=a,y2=b"` for several outputs.
        weight: of the rows: an array, or of a DataFrame a column.
        inputs, transform, transform_batches: as for `predict_columns_here`, for a DataFrame with the columns of --data.

    Raises:
        CannotScore: a column is missing or of another kind, or labels and outputs do not fit.
    """
    from ddl_magics.dashboard.evaluation import Evaluation
    from ddl_magics.runtime.data.columns import DataError
    from ddl_magics.runtime.scoring import evaluator

    try:
        y, weights = _labels(rows, label), None if weight is None else _column(rows, weight)
        x = _inputs(model, rows, features, inputs, transform, transform_batches)
        outputs = model.predict(x, batch_size=batch_size, verbose=0)
        metrics: Mapping[str, Any] = {}
        if evaluator.is_compiled(model):
            given = {"sample_weight": weights, "batch_size": batch_size, "verbose": 0, "return_dict": True}
            metrics = model.evaluate(x, y, **given)
        counts = {name: evaluator.count(*values) for name, *values in evaluator.pairs(model, outputs, y)}
    except CannotScore:
        raise
    except DataError as error:
        raise CannotScore(str(error)) from None
    except (ValueError, TypeError) as error:  # of Keras
        raise CannotScore(f"the rows cannot be evaluated: {first_line(error)}") from error
    nan = evaluator.holding_nan(y, label if isinstance(label, str) else "y")
    notices = [evaluator.of_nan(nan, "and so will metrics")] if nan else []
    return Evaluation(
        {"rows": len(evaluator.first_array(y)), "metrics": metrics, "outputs": counts, "notices": notices}
    )


def _inputs(
    model: Any,
    rows: Any,
    features: Sequence[str] | None,
    inputs: Inputs | None,
    transform: Transform | None,
    by_batch: bool,
) -> Any:
    """What the model is called with."""
    from ddl_magics.runtime.scoring import pandas_rows
    from ddl_magics.runtime.scoring.predictor import prepared

    if not is_pandas(rows):
        return rows
    if inputs is None:
        return _numbers(rows, features)
    if transform is not None:
        inputs = {**inputs, "transform": prepared(transform, by_batch)}
    return pandas_rows.features(model, rows, inputs)


def _labels(rows: Any, label: Any) -> Any:
    """The labels as an array, or as a dict of arrays of several outputs."""
    if isinstance(label, Mapping):
        return {output: _column(rows, values) for output, values in label.items()}
    if isinstance(label, str) and "=" in label and not (is_pandas(rows) and label in rows):
        pairs = (part.partition("=") for part in label.split(","))
        return {output.strip(): _column(rows, column.strip()) for output, _, column in pairs}
    return _column(rows, label)


def _column(rows: Any, values: Any) -> Any:
    """Values of each row as an array: they are one, or the name of a column."""
    import numpy as np

    if isinstance(values, str):
        if not is_pandas(rows):
            raise CannotScore(f"{values!r} is no column of arrays: give the labels, evaluate(x, y)")
        if values not in rows:
            raise CannotScore(f"the DataFrame has no column {values!r}.{nearest(values, map(str, rows.columns))}")
        values = rows[values]
    return np.asarray(values)


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
