"""Windows for a time series model: each row gets itself and the rows before it in its series, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

import numpy as np

from ..data.columns import SQL_TYPES, DataError, check_column, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column as SqlColumn
    from pyspark.sql import WindowSpec

    from ..data.arrow import DataType
    from ..data.records import Column, DataFrame, Inputs, Windows


def with_labelled_windows(
    frame: DataFrame, name: str, inputs: Inputs, labels: Sequence[str]
) -> tuple[DataFrame, Inputs, list[str]]:
    """As `with_windows`, but only the windows that training uses: every `stride`-th one that has a label.

    labels: the columns of label and weight. The new frame has their values `horizon` rows after the window.
    """
    from pyspark.sql import functions as F

    window = inputs["window"]
    _check(name, inputs, frame)
    horizon, stride = window.get("horizon", 1), window.get("stride", 1)
    series = _series(window)
    frame = frame.withColumn("__number", F.row_number().over(series))
    frame = frame.withColumn("__labelled", F.lead(F.lit(True), horizon).over(series))
    for index, label in enumerate(labels):
        frame = frame.withColumn("__label_%d" % index, F.lead(quoted(label), horizon).over(series))
    frame, windowed_inputs, added = with_windows(frame, name, inputs, lenient=False, ahead=horizon)
    frame = frame.where(F.col("__labelled") & ((F.col("__number") - window["length"]) % stride == 0))
    frame = frame.drop("__number", "__labelled", *labels)
    for index, label in enumerate(labels):
        frame = frame.withColumnRenamed("__label_%d" % index, label)
    return frame, windowed_inputs, added


def _series(window: Windows) -> WindowSpec:
    """A series' rows in their order."""
    from pyspark.sql import Window

    return Window.partitionBy(*map(quoted, window["group_by"])).orderBy(quoted(window["order_by"]))


def _padded(lists: SqlColumn, kind: DataType, column: Column) -> SqlColumn:
    """Lists as `packing.of_lists` pads and cuts them. kind: theirs."""
    from pyspark.sql import functions as F

    blank = F.lit("" if column["dtype"] == "S" else 0).cast(kind.elementType)
    return F.slice(F.concat(lists, F.array_repeat(blank, column["pad"])), 1, column["pad"])


def _check(name: str, inputs: Inputs, frame: DataFrame) -> None:
    window, names = inputs["window"], [str(column) for column in frame.columns]
    for option, columns in (("--order-by", [window["order_by"]]), ("--group-by", window["group_by"])):
        for column in columns:
            check_column(option, column, name, names)
    if inputs["shapes"] is None:
        raise DataError("it is not known which windows the model takes")


def with_windows(
    frame: DataFrame, name: str, inputs: Inputs, lenient: bool, ahead: int = 0
) -> tuple[DataFrame, Inputs, list[str]]:
    """(`frame` with windows in new columns, how these become the model's inputs, the names of the new columns).

    A row's window ends with the row. Rows with too few predecessors are dropped. A window with a missing value is null.
    A window whose rows have no order fails the Spark job, or is null if `lenient`.

    name: of the frame, for messages. inputs: with a `window`. ahead: rows after a window that need an order, too: one
    has the label. Raises `DataError`, one line.
    """
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F

    window = inputs["window"]
    length = window["length"]
    _check(name, inputs, frame)
    assert inputs["shapes"] is not None
    series = _series(window)
    rows, ordered = series.rowsBetween(1 - length, 0), series.rowsBetween(1 - length, ahead)
    order, keys = F.col(quoted(window["order_by"])), [window["order_by"], *window["group_by"]]
    unordered = (order == F.lag(order).over(series)) | (order == F.lead(order).over(series))
    for key in keys:
        unordered = F.coalesce(unordered, F.lit(False)) | F.col(quoted(key)).isNull()
    frame = frame.withColumn("__position", F.row_number().over(series)).withColumn("__unordered", unordered)
    problem = "column %r: rows of a series have the same value or none, and so no order" % window["order_by"]
    otherwise = F.lit(None) if lenient else F.raise_error(F.lit(problem))
    added: list[str] = []
    described: list[Column] = []
    for index, (column_indices, shape) in enumerate(zip(inputs["tensors"], inputs["shapes"])):
        columns_of = [inputs["columns"][i] for i in column_indices]
        dtype = np.result_type(*(column["dtype"] for column in columns_of))
        values = [F.col(quoted(column["name"])) for column in columns_of]
        if len(column_indices) > 1:
            value = F.array(*(column.cast(SQL_TYPES[dtype.name]) for column in values))
        else:
            value = vector_to_array(values[0]) if columns_of[0]["vector"] else values[0]
            if "pad" in columns_of[0]:
                value = _padded(value, frame.schema[columns_of[0]["name"]].dataType, columns_of[0])
        added.append("__window_%d" % index)
        sequence = F.when(F.count(value).over(rows) == length, F.collect_list(value).over(rows))
        frame = frame.withColumn(added[-1], F.when(F.max("__unordered").over(ordered), otherwise).otherwise(sequence))
        code = "S" if dtype.kind == "S" else dtype.str.lstrip("<>|=").replace("b1", "?")
        column_names = "+".join(column["name"] for column in columns_of)
        described.append({"name": column_names, "dtype": code, "depth": 1 + len(shape), "vector": False})
    windowed_inputs: Inputs = {
        "columns": described,
        "tensors": [[index] for index in range(len(described))],
        "uses": inputs["uses"],
        "shapes": [[length, *shape] for shape in inputs["shapes"]],
        "features": inputs["features"],
    }
    return frame.where(F.col("__position") >= length).drop("__position", "__unordered"), windowed_inputs, added
