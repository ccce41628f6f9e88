"""Spark SQL that sums the errors of labelled rows per window."""

from __future__ import annotations

from ..spark.pyspark_types import DataFrame
from .counting import flattened, is_moment, scalar, window_start
from .watched import Tensor

#: Kind of an error -> the error of a row with the output `o`, or the array of outputs `p`, and the true value `y`.
ERRORS = {
    "absolute": "abs(o - y)",
    "percent": "IF(y = 0D, NULL, 100 * abs((o - y) / y))",
    "wrong": "CAST(array_position(p, array_max(p)) - 1 <> CAST(y AS BIGINT) AS DOUBLE)",
    "binary": "CAST(CAST(o >= 0.5 AS DOUBLE) <> y AS DOUBLE)",
}


def labels_of(stream: DataFrame) -> DataFrame:
    """(label_id, label, label_time) of JSON objects {"id", "label", "time"} in a column `value`."""
    parsed = stream.selectExpr("from_json(CAST(value AS STRING), 'id STRING, label STRING, time DOUBLE') AS l")
    return parsed.where("l.id IS NOT NULL AND l.label IS NOT NULL").selectExpr(
        "l.id AS label_id",
        "l.label AS label",
        "IF(%s, CAST(l.time AS TIMESTAMP), current_timestamp()) AS label_time" % is_moment("l.time"),
    )


def joined(requests: DataFrame, labels: DataFrame, delay: str) -> DataFrame:
    """The requests of a stream with the labels of another, which come at most so long after them."""
    from pyspark.sql import functions as F

    distinct_labels = labels.withWatermark("label_time", delay).dropDuplicates(["label_id", "label_time"])
    condition = F.expr(
        "id = label_id AND label_time >= time - interval %s AND label_time <= time + interval %s" % (delay, delay)
    )
    return requests.where("NOT unreadable").join(distinct_labels, condition)


def errors(pairs: DataFrame, output: Tensor, kind: str, window_seconds: float) -> DataFrame:
    """Rows (window, rows, sum, squares) of requests with a column `label`: a number, or one for each of their rows."""
    from pyspark.sql import functions as F

    parsed = "from_json(label, 'array<double>')"
    truth = "IF(trim(label) LIKE '[%%', %s, array(CAST(label AS DOUBLE))) AS y" % parsed
    rows = pairs.where("o0 IS NOT NULL AND NOT failed").selectExpr(
        "%s AS window" % window_start(window_seconds), "o0", truth
    )
    labelled_rows = rows.selectExpr("window", "explode(arrays_zip(o0, y)) AS e")
    if output["view"] == "scalar":
        columns = "%s AS o" % scalar("e.o0"), "CAST(NULL AS ARRAY<DOUBLE>) AS p"
    else:
        flat = flattened("e.o0", output["depth"])
        columns = "element_at(%s, 1) AS o" % flat, "%s AS p" % flat
    predictions = labelled_rows.selectExpr("window", "e.y AS y", *columns).where("y IS NOT NULL")
    error = predictions.selectExpr("window", "%s AS error" % ERRORS[kind]).where("error IS NOT NULL")
    sums = F.count(F.lit(1)).alias("rows"), F.sum("error").alias("sum"), F.expr("sum(error * error)").alias("squares")
    return error.groupBy("window").agg(*sums)
