"""Windows of rows for a model of time series: each row gets the rows before it of its series, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

import numpy as np

from ..data.columns import SQL_TYPES, DataError, check_column, quoted

if TYPE_CHECKING:
    from pyspark.sql import WindowSpec

    from ..data.records import Column, DataFrame, Inputs, Windows


def with_labelled_windows(
    frame: DataFrame, name: str, known: Inputs, labels: Sequence[str]
) -> tuple[DataFrame, Inputs, list[str]]:
    """The same as `with_windows`, of the windows of training alone: those that have a label, every `stride`-th one.

    labels: the columns of the label and the weight. In the new frame they have the values of the row `horizon` rows
    after the window.
    """
    from pyspark.sql import functions as F

    window = known["window"]
    _check(name, known, frame)
    horizon, stride = window.get("horizon", 1), window.get("stride", 1)
    series = _series(window)
    made = frame.withColumn("__number", F.row_number().over(series))
    made = made.withColumn("__labelled", F.lead(F.lit(True), horizon).over(series))
    for index, label in enumerate(labels):
        made = made.withColumn("__label_%d" % index, F.lead(quoted(label), horizon).over(series))
    made, inputs, added = with_windows(made, name, known, lenient=False, ahead=horizon)
    made = made.where(F.col("__labelled") & ((F.col("__number") - window["length"]) % stride == 0))
    made = made.drop("__number", "__labelled", *labels)
    for index, label in enumerate(labels):
        made = made.withColumnRenamed("__label_%d" % index, label)
    return made, inputs, added


def _series(window: Windows) -> WindowSpec:
    """A series' rows in their order."""
    from pyspark.sql import Window

    return Window.partitionBy(*map(quoted, window["group_by"])).orderBy(quoted(window["order_by"]))


def _check(name: str, known: Inputs, frame: DataFrame) -> None:
    window, names = known["window"], [str(column) for column in frame.columns]
    for option, columns in (("--order-by", [window["order_by"]]), ("--group-by", window["group_by"])):
        for column in columns:
            check_column(option, column, name, names)
    if known["shapes"] is None:
        raise DataError("it is not known which windows the model takes")


def with_windows(
    frame: DataFrame, name: str, known: Inputs, lenient: bool, ahead: int = 0
) -> tuple[DataFrame, Inputs, list[str]]:
    """(`frame` with windows in new columns, how these become the model's inputs, the names of the new columns).

    A row's window ends with the row. Rows that have too few before them are left out. A window with a missing value is
    null. Spark fails at one whose rows have no order; `lenient`, it is null, too. name: of the frame, for messages.
    ahead: how many rows after a window need an order, too, as one of them has its label.
    known: with a `window`. Raises `DataError`, one line.
    """
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F

    window = known["window"]
    length = window["length"]
    _check(name, known, frame)
    assert known["shapes"] is not None
    series = _series(window)
    rows, ordered = series.rowsBetween(1 - length, 0), series.rowsBetween(1 - length, ahead)
    order, keys = F.col(quoted(window["order_by"])), [window["order_by"], *window["group_by"]]
    unordered = (order == F.lag(order).over(series)) | (order == F.lead(order).over(series))
    for key in keys:
        unordered = F.coalesce(unordered, F.lit(False)) | F.col(quoted(key)).isNull()
    made = frame.withColumn("__place", F.row_number().over(series)).withColumn("__unordered", unordered)
    problem = "column %r: rows of a series have the same value or none, and so no order" % window["order_by"]
    otherwise = F.lit(None) if lenient else F.raise_error(F.lit(problem))
    added: list[str] = []
    described: list[Column] = []
    for index, (own, shape) in enumerate(zip(known["tensors"], known["shapes"])):
        columns_of = [known["columns"][i] for i in own]
        dtype = np.result_type(*(column["dtype"] for column in columns_of))
        values = [F.col(quoted(column["name"])) for column in columns_of]
        if len(own) > 1:
            value = F.array(*(each.cast(SQL_TYPES[dtype.name]) for each in values))
        else:
            value = vector_to_array(values[0]) if columns_of[0]["vector"] else values[0]
        added.append("__window_%d" % index)
        whole = F.when(F.count(value).over(rows) == length, F.collect_list(value).over(rows))
        made = made.withColumn(added[-1], F.when(F.max("__unordered").over(ordered), otherwise).otherwise(whole))
        code = "S" if dtype.kind == "S" else dtype.str.lstrip("<>|=").replace("b1", "?")
        shown = "+".join(column["name"] for column in columns_of)
        described.append({"name": shown, "dtype": code, "depth": 1 + len(shape), "vector": False})
    inputs: Inputs = {
        "columns": described,
        "tensors": [[index] for index in range(len(described))],
        "uses": known["uses"],
        "shapes": [[length, *shape] for shape in known["shapes"]],
        "features": known["features"],
    }
    return made.where(F.col("__place") >= length).drop("__place", "__unordered"), inputs, added
