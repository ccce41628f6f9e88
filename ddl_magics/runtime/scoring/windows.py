"""Windows of rows for a model of time series: each row gets the rows before it of its series, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..data.columns import DataError, check_column

if TYPE_CHECKING:
    from ..data.records import Column, DataFrame, Inputs

#: NumPy's dtype -> Spark's name of the type.
_TYPES = {"i1": "byte", "i2": "short", "i4": "int", "i8": "long", "f4": "float", "f8": "double", "b1": "boolean"}


def with_windows(frame: DataFrame, name: str, known: Inputs) -> tuple[DataFrame, Inputs, list[str]]:
    """(`frame` with windows in new columns, how these become the model's inputs, their names).

    A row's window ends with the row. Rows that have too few before them are left out. name: of the frame, for messages.
    known: with a `window`. Raises `DataError`, one line.
    """
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    window = known["window"]
    length, names = window["length"], [str(column) for column in frame.columns]
    for option, columns in (("--order-by", [window["order_by"]]), ("--group-by", window["group_by"])):
        for column in columns:
            check_column(option, column, name, names)
    if known["shapes"] is None:
        raise DataError("it is not known which windows the model takes")
    series = Window.partitionBy(*map(_quoted, window["group_by"])).orderBy(_quoted(window["order_by"]))
    rows = series.rowsBetween(1 - length, 0)
    made, added = frame.withColumn("__place", F.row_number().over(series)), []
    described: list[Column] = []
    for index, (own, shape) in enumerate(zip(known["tensors"], known["shapes"])):
        columns_of = [known["columns"][i] for i in own]
        dtype = np.result_type(*(column["dtype"] for column in columns_of))
        values = [F.col(_quoted(column["name"])) for column in columns_of]
        if len(own) > 1:
            value = F.array(*(each.cast(_TYPES[dtype.str.lstrip("<>|=")]) for each in values))
        else:
            value = vector_to_array(values[0]) if columns_of[0]["vector"] else values[0]
        added.append("__window_%d" % index)
        made = made.withColumn(added[-1], F.collect_list(value).over(rows))
        code = "S" if dtype.kind == "S" else dtype.str.lstrip("<>|=").replace("b1", "?")
        described.append({"name": added[-1], "dtype": code, "depth": 1 + len(shape), "vector": False})
    inputs: Inputs = {
        "columns": described,
        "tensors": [[index] for index in range(len(described))],
        "uses": known["uses"],
        "shapes": [[length, *shape] for shape in known["shapes"]],
        "features": known["features"],
    }
    return made.where(F.col("__place") >= length).drop("__place"), inputs, added


def _quoted(column: str) -> str:
    return "`%s`" % column.replace("`", "``")
