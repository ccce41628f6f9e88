"""Spark SQL that counts the watched values of logged requests per window and bin.

No Python runs on the executors. Every expression is one of Spark 3.1.
"""

from __future__ import annotations

import math
from typing import Any, List, Sequence

from ..data.columns import quoted
from ..spark.pyspark_types import DataFrame
from .reference import Feature, Reference
from .watched import Tensor

#: The latency's bins: bin k begins at 0.1 ms times 10^(k/8), up to 100 s.
LATENCY_FIRST, LATENCY_PER_DECADE, LATENCY_BINS = 1e-4, 8, 49
#: How far ahead of the cluster's clock the time of a record may be, in seconds: clocks of hosts differ.
AHEAD_SECONDS = 300.0
#: Digits of the hash by which lines that cannot be read are told from each other. Spark keeps each of them for ever.
LINE_DIGITS = 5
#: The bin of a missing value.
NULL = -1


def latency_of(bin: int) -> float:
    """The middle of a bin, in seconds."""
    return float(LATENCY_FIRST * 10 ** ((bin + 0.5) / LATENCY_PER_DECADE))


class Counter:
    """Counts a batch of requests. A metric is the index of a watched value of a row: inputs, outputs, then three of
    the request: its latency, whether it had an error, and whether its record could not be read.
    """

    def __init__(self, reference: Reference, window_seconds: float) -> None:
        self._inputs, self._outputs = reference["inputs"], reference["outputs"]
        self._features: Sequence[Feature] = reference["features"]
        self.inputs = sum(len(tensor["named"]) for tensor in self._inputs)
        self.latency = len(self._features)
        self.error, self.unreadable = self.latency + 1, self.latency + 2
        self._seconds = window_seconds

    def requests(self, stream: DataFrame, delay: str) -> DataFrame:
        """The requests of a stream with a column `value`, each once by id and time. delay: of the watermark."""
        from pyspark.sql import functions as F

        parsed = stream.select(F.col("value").cast("string").alias("value")).select(
            F.from_json("value", self._schema(), {"mode": "PERMISSIVE"}).alias("r"), "value"
        )
        bad = "(NOT %s OR r.id IS NULL)" % is_moment("r.time")
        columns = [
            "%s AS unreadable" % bad,
            "IF(%s, left(sha1(value), %d), r.id) AS id" % (bad, LINE_DIGITS),
            # Without a time it does not move the watermark, after which all older records would be late.
            "IF(%s, CAST(NULL AS TIMESTAMP), CAST(r.time AS TIMESTAMP)) AS time" % bad,
            "r.latency AS latency",
            "(r.error IS NOT NULL) AS failed",
        ]
        for side, tensors, field in (("i", self._inputs, "inputs"), ("o", self._outputs, "outputs")):
            alone = len(tensors) == 1
            for number, tensor in enumerate(tensors):
                value = "map_values(r.%s)[0]" % field if alone else "r.%s.%s" % (field, quoted(tensor["name"]))
                columns.append("%s AS %s%d" % (value, side, number))
        return parsed.selectExpr(*columns).withWatermark("time", delay).dropDuplicates(["id", "time"])

    def counts(self, requests: DataFrame) -> DataFrame:
        """Rows (window, metric, bin, rows, sum, squares). window: when it begins, in seconds since the epoch; null for
        lines that cannot be read.
        """
        names = ["i%d" % n for n in range(len(self._inputs))] + ["o%d" % n for n in range(len(self._outputs))]
        zipped = "arrays_zip(%s)" % ", ".join(names)
        has_inputs = " AND ".join("%s IS NOT NULL" % name for name in names if name[0] == "i") or "false"
        has_outputs = " AND ".join("%s IS NOT NULL" % name for name in names if name[0] == "o") or "false"
        lists = ["coalesce(%s, array()) AS %s" % (name, name) for name in names]
        start = "%s AS window" % window_start(self._seconds)
        request_columns = "unreadable", "failed", "latency"
        windowed = requests.selectExpr(
            start, *request_columns, "(%s) AS has_inputs" % has_inputs, "(%s) AS has_outputs" % has_outputs, *lists
        )
        rows = windowed.selectExpr(
            "window", *request_columns, "has_inputs", "has_outputs", "posexplode_outer(%s) AS (row, e)" % zipped
        )
        expressions = [
            _padded(_expression(tensor, "e.%s%d" % (side, number), self._of(side, number)), len(tensor["named"]))
            for side, tensors in (("i", self._inputs), ("o", self._outputs))
            for number, tensor in enumerate(tensors)
        ]
        alone = "array(latency, CAST(failed AS DOUBLE), 1D)"
        values = rows.selectExpr(
            "window", "unreadable", "has_inputs", "has_outputs", "coalesce(row, 0) AS row",
            "concat(%s) AS v" % ", ".join([*expressions, alone]),
        )  # fmt: skip
        metrics = values.selectExpr(
            "window", "unreadable", "has_inputs", "has_outputs", "row", "posexplode(v) AS (metric, x)"
        )
        is_counted = (
            "CASE WHEN metric = %d THEN unreadable AND row = 0 WHEN unreadable THEN false "
            "WHEN metric < %d THEN has_inputs WHEN metric < %d THEN has_outputs ELSE row = 0 END"
        ) % (self.unreadable, self.inputs, self.latency)
        binned = metrics.where(is_counted).selectExpr("window", "metric", "%s AS bin" % self._bin(), "x")
        return binned.groupBy("window", "metric", "bin").agg(*_sums())

    def _of(self, side: str, number: int) -> Feature:
        before = sum(len(t["named"]) for t in self._inputs) if side == "o" else 0
        tensors = self._outputs if side == "o" else self._inputs
        return self._features[before + sum(len(t["named"]) for t in tensors[:number])]

    def _schema(self) -> str:
        fields = ["time DOUBLE", "id STRING", "latency DOUBLE", "error STRING"]
        for name, tensors in (("inputs", self._inputs), ("outputs", self._outputs)):
            if len(tensors) == 1:
                fields.append("%s MAP<STRING, %s>" % (name, _type(tensors[0])))
            elif tensors:
                columns = ", ".join("%s: %s" % (quoted(tensor["name"]), _type(tensor)) for tensor in tensors)
                fields.append("%s STRUCT<%s>" % (name, columns))
        return ", ".join(fields)

    def _bin(self) -> str:
        """How many edges are at or below x: `numpy.searchsorted(edges, x, side="right")`."""
        edges = [feature["edges"] for feature in self._features] + [[0.5], [0.5], [0.5]]
        above = []
        for k in range(max(map(len, edges))):
            column = ", ".join(_number(bounds[k] if k < len(bounds) else math.inf) for bounds in edges)
            above.append("CAST(x >= array(%s)[metric] AS INT)" % column)
        highest_bin = "array(%s)[metric]" % ", ".join(str(len(bounds)) for bounds in edges)
        bounds_of_latency = LATENCY_BINS - 1, LATENCY_FIRST, LATENCY_PER_DECADE
        latency = "greatest(0, least(%d, CAST(floor(log10(x / %r) * %d) AS INT)))" % bounds_of_latency
        by_edges = "least(%s, %s)" % (highest_bin, " + ".join(above))
        cases = "CASE WHEN x IS NULL OR isnan(x) THEN %d WHEN metric = %d THEN %s ELSE %s END"
        return cases % (NULL, self.latency, latency, by_edges)


def _sums() -> List[Any]:
    from pyspark.sql import functions as F

    present = F.expr("IF(x IS NULL OR isnan(x), 0D, x)")
    return [F.count(F.lit(1)).alias("rows"), F.sum(present).alias("sum"), F.sum(present * present).alias("squares")]


def _type(tensor: Tensor) -> str:
    """Of the rows in JSON. A number without lists may come as a list of one, so it is read as text."""
    depth, leaf = tensor["depth"], "DOUBLE"
    if tensor["view"] in ("scalar", "text"):
        leaf = "STRING"
    for _ in range(depth + 1):
        leaf = "ARRAY<%s>" % leaf
    return leaf


def is_moment(time: str) -> str:
    """SQL: whether a number is a time since the epoch that may have come: finite, and hardly in the future.

    One record of the year 2096 would make all later ones late, for good.
    """
    return "coalesce(%s BETWEEN 0D AND CAST(current_timestamp() AS DOUBLE) + %r, false)" % (time, AHEAD_SECONDS)


def window_start(seconds: float) -> str:
    """SQL: when the window of a row's `time` begins, in seconds since the epoch."""
    return "CAST(floor(CAST(time AS DOUBLE) / %r) * %r AS DOUBLE)" % (seconds, seconds)


def scalar(value: str) -> str:
    """SQL: the number of a text, which may be a list of one."""
    return "CAST(trim(BOTH '[] ' FROM %s) AS DOUBLE)" % value


def flattened(value: str, depth: int) -> str:
    """SQL: arrays nested so deep as one array."""
    return "flatten(%s)" % flattened(value, depth - 1) if depth > 1 else value


def _expression(tensor: Tensor, value: str, feature: Feature) -> str:
    """An array of what is watched of a row's `value`, in SQL."""
    depth = tensor["depth"] - int(tensor["windowed"])
    base = "element_at(%s, -1)" % value if tensor["windowed"] else value
    view = tensor["view"]
    if view == "scalar":
        return "array(%s)" % scalar(base)
    if view == "text":
        text = "IF(%s LIKE '[%%', get_json_object(%s, '$[0]'), %s)" % (base, base, base)
        labels = ", ".join(_text(label) for label in (feature["labels"] or [""])[1:])
        return "array(CAST(array_position(array(%s), %s) AS DOUBLE))" % (labels or "''", text)
    base = flattened(base, depth)
    if view == "vector":
        return base
    mean = "aggregate(%s, 0D, (a, b) -> a + b) / size(%s)" % (base, base)
    if view == "largest":
        return "array(%s, CAST(array_position(%s, array_max(%s)) - 1 AS DOUBLE))" % (mean, base, base)
    return "array(%s)" % mean


def _padded(array: str, size: int) -> str:
    """The array, or so many nulls where it is missing or of another length."""
    return "IF(size(%s) = %d, %s, array_repeat(CAST(NULL AS DOUBLE), %d))" % (array, size, array, size)


def _number(value: float) -> str:
    return "double('%r')" % value if math.isfinite(value) else "double('Infinity')"


def _text(value: str) -> str:
    return "'%s'" % value.replace("\\", "\\\\").replace("'", "\\'")
