"""Predictions on Spark: a DataFrame in, a DataFrame out, scored where its rows are."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddl_magics.errors import CannotScore
from ddl_magics.options import RunSpec

if TYPE_CHECKING:
    from ddl_magics.runtime.data.records import Inputs

#: Of pyspark, which is imported where there is one.
DataFrame = Any


def predict(
    df: DataFrame,
    model: Any,
    *,
    features: Sequence[str] | Inputs | None = None,
    output: str = "prediction",
    batch_size: int = 1024,
    on_error: str = "fail",
    custom_objects: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A Spark DataFrame with a model's predictions beside its columns.

    It is lazy: Spark scores the rows when they are needed, on its executors, each of which loads the model once. Only
    the first row is scored at once, which tells the types of the new columns.

    Args:
        df: a DataFrame of a Spark session in this process. Not one that streams: score the batches of `foreachBatch`.
        model: a Keras model, or the path of a `.keras` file.
        features: the columns of the model's input, as `--features` takes them; `["image=pixels", "meta=a+b"]` for
            several inputs.
        output: the name of the new column. It holds a number where the model makes one a row, else an array. A model
            with several outputs adds a column `prediction_NAME` for each.
        batch_size: rows that the model is called with at once.
        on_error: "fail" where a row has no value in a feature, or one of another shape; "null" for rows without a
            prediction instead.
        custom_objects: classes and functions that the model uses, by name.

    Raises:
        CannotScore: a ValueError of one line; a column is missing, or the first row cannot be scored.
    """
    from ddl_magics.runtime.data.columns import DataError
    from ddl_magics.runtime.scoring.predictor import Predictor

    if features is None:
        raise CannotScore("name the columns of the model's input: features=['a', 'b']")
    try:
        return Predictor(_content(model), features, output, batch_size, on_error, custom_objects).predict(df)
    except DataError as error:
        raise CannotScore(str(error)) from None


def _content(model: Any) -> bytes:
    """The bytes of a `.keras` file."""
    if isinstance(model, str | Path):
        return Path(model).read_bytes()
    if not callable(getattr(model, "save", None)):
        kind = type(model).__qualname__
        raise CannotScore(f"a {kind} cannot score rows: give a Keras model, or the path of a .keras file")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def training_inputs(run: str, spec: RunSpec, events: Iterable[Mapping[str, Any]]) -> Inputs:
    """How a run has made its model's inputs of a DataFrame.

    Raises:
        CannotScore: it has not, or of windows of rows.
    """
    if spec.sequence_length is not None:
        raise CannotScore(f"{run} was trained on windows of rows, which predict cannot make of a DataFrame")
    dealt = [event for event in events if event.get("kind") == "data"]
    if not dealt:
        raise CannotScore(f"{run} was trained without --data: name the model's columns, features=['a', 'b']")
    inputs: Inputs = dealt[-1]["inputs"]
    return inputs
