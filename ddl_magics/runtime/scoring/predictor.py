"""A DataFrame with a model's predictions: Spark's executors load the model and score their own rows."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Mapping, Sequence

import numpy as np

from ..data import arrow, by_value
from ..data import transform as transforms
from ..data.columns import SQL_TYPES, DataError, check_columns, describe_columns, is_spark, session_of
from ..data.roles import Roles, choose, inputs
from ..spark import jvm_gateway, spark_error
from . import scorer
from .tasks import Task, Tasks
from .windows import with_windows

if TYPE_CHECKING:
    from ..data.records import Column, DataFrame, Inputs
    from ..data.transform import Transform
    from .records import Plan

FAIL, NULL = "fail", "null"
#: With on_error="null", the first readable one of this many rows determines the types of the predictions.
TRIED_ROWS = 1000
#: Numbers in the rows that a task holds at once. Each is a Python object before it is in an array: 130 MB.
MOST_NUMBERS = 4_000_000
#: The job group of Spark jobs that run before a prediction.
GROUP = "ddl_magics prediction"
#: What messages call the frame, and what names its columns.
FRAME, _FEATURES = "df", "features"


class Predictor:
    """A model that scores the rows of Spark's DataFrames.

    Args:
        model: the bytes of a `.keras` file.
        features: column names as --features takes them, or the inputs of the run that trained the model.
        output: the name of the prediction column.
        batch_rows: rows per call of the model; fewer where rows are large.
        on_error: "fail", or "null" for no prediction where a row cannot be read.
        custom_objects, code_python: as `lambda_layers.load` takes them.
        transform: of `prepared`.

    Raises:
        DataError: one line.
    """

    def __init__(
        self,
        model: bytes,
        features: Sequence[str] | Inputs,
        *,
        output: str,
        batch_rows: int,
        on_error: str,
        custom_objects: Mapping[str, Any] | None = None,
        code_python: str | None = None,
        transform: Transform | None = None,
    ) -> None:
        if batch_rows < 1:
            raise DataError("batch_size must be 1 or more, not %d" % batch_rows)
        if on_error not in (FAIL, NULL):
            raise DataError('on_error must be "fail" or "null", not %r' % on_error)
        self._model, self._features, self._output = model, features, output
        self._batch_rows, self._lenient = batch_rows, on_error == NULL
        self._custom_objects, self._code_python = dict(custom_objects or {}), code_python
        self._transform = transform

    def predict(self, frame: DataFrame) -> DataFrame:
        """`frame` with the predictions in further columns. Only the first row is scored at once, for their types.

        Raises:
            DataError: one line.
        """
        from pyspark.sql.types import StructType, TimestampType

        check_frame(frame)
        inputs = inputs_of(frame, self._features, self._transform)
        windows: list[str] = []
        if "window" in inputs:
            frame, inputs, windows = with_windows(frame, FRAME, inputs, self._lenient)
        times = [i for i, field in enumerate(frame.schema.fields) if isinstance(field.dataType, TimestampType)]
        frame = _applied(frame, "unix_micros", times)
        read = windows or [column["name"] for column in inputs["columns"]]
        positions = {name: index for index, name in reversed(list(enumerate(frame.columns)))}
        indices = [positions[name] for name in read]
        plan: Plan = {"inputs": inputs, "indices": indices, "batch_rows": self._batch_rows, "lenient": self._lenient}
        session = session_of(frame)
        task = Tasks(session.sparkContext, self._model, self._custom_objects, self._code_python)
        first_rows = frame.limit(TRIED_ROWS if self._lenient else 1)
        description = _description(first_rows.rdd, task(scorer.describe, plan=plan))
        if description is None:  # a batch of a stream may be empty
            no_rows = session.sparkContext.parallelize([None], 1)
            description = _description(no_rows, task(scorer.describe_zeros, plan=plan))
        if description is None:
            raise DataError("%s has no rows that could tell the type of a prediction" % FRAME)
        shapes, outputs = description
        fields = self._fields(frame, outputs)
        plan = {**plan, "inputs": {**inputs, "shapes": shapes}, "batch_rows": bounded(self._batch_rows, shapes)}
        schema = StructType([*frame.schema.fields, *fields])
        scored = None
        if not windows and self._takes_arrow(frame, plan):
            with contextlib.suppress(ImportError):  # pyspark wants a newer pyarrow or pandas
                scored = arrow.mapped(frame, task.of_batches(plan), schema)
        if scored is None:
            rows = frame.rdd.mapPartitions(task(scorer.score, plan=plan, outputs=len(fields)))
            scored = session.createDataFrame(rows, schema, verifySchema=False)
        return _applied(scored, "timestamp_micros", times).drop(*windows)

    def _takes_arrow(self, frame: DataFrame, plan: Plan) -> bool:
        """Whether Spark hands over columns instead of rows, which takes less time."""
        inputs, session = plan["inputs"], session_of(frame)
        row_bytes = sum(8 * int(np.prod(shape)) for shape in inputs["shapes"] or [])
        return (
            not self._lenient
            and all(map(arrow.is_apt, inputs["columns"]))
            and not any("ragged" in column for column in inputs["columns"])  # nothing bounds the length of a list
            and all(arrow.travels(field.dataType) for field in frame.schema.fields)
            and arrow.fits(frame, row_bytes)
            and arrow.is_everywhere(jvm_gateway.separate_context(session.sparkContext), GROUP)
        )

    def _fields(self, frame: DataFrame, outputs: Sequence[tuple[str, str, int]]) -> list[Any]:
        """Spark's fields of the outputs: `prediction`, or `prediction_NAME` of several."""
        from pyspark.sql.types import StructField, _parse_datatype_string

        fields = []
        for name, dtype, dimensions in outputs:
            if dtype not in SQL_TYPES:
                raise DataError("the model gives values of type %s, which Spark does not have" % dtype)
            kind = SQL_TYPES[dtype]
            for _ in range(dimensions):
                kind = "array<%s>" % kind
            column = "%s_%s" % (self._output, name) if name else self._output
            if column.lower() in map(str.lower, frame.columns):  # Spark's names have no case
                raise DataError("%s has a column %r: name another with output=" % (FRAME, column))
            fields.append(StructField(column, _parse_datatype_string(kind), True))
        return fields


def bounded(batch_rows: int, shapes: Sequence[Sequence[int]]) -> int:
    """So many rows at once, or fewer where they are large. shapes: of a row's tensors."""
    numbers = sum(int(np.prod(shape)) for shape in shapes)
    return max(1, min(batch_rows, MOST_NUMBERS // max(1, numbers)))


def prepared(function: Transform, by_batch: bool) -> Transform:
    """The function that executors apply to the features of a batch, from a --transform function."""
    applied, bound = by_value.functions_of(transforms)["applied"], transforms.for_rows(function, training=False)

    def transform(features: Any) -> Any:
        import tensorflow as tf

        return applied(tf, bound, by_batch, features)

    return transform


def inputs_of(frame: DataFrame, features: Sequence[str] | Inputs, transform: Transform | None = None) -> Inputs:
    """How the columns of `frame` become a model's inputs. transform: of `prepared`. Raises `DataError`, one line."""
    if isinstance(features, dict):
        columns = columns_in_frame(features["columns"], frame)
        model_inputs: Inputs = {**features, "columns": columns}
    else:
        choice = choose(FRAME, frame, Roles(features=list(features)))
        columns = describe_columns(FRAME, frame, choice.names())
        model_inputs = inputs(columns, choice.arrange(columns))
    return model_inputs if transform is None else {**model_inputs, "transform": transform}


def columns_in_frame(columns: Sequence[Column], frame: DataFrame) -> list[Column]:
    """The columns of training in `frame`."""
    names = [column["name"] for column in columns]
    check_columns(_FEATURES, names, FRAME, list(map(str, frame.columns)))
    return [_as_in_frame(*pair) for pair in zip(columns, describe_columns(FRAME, frame, names))]


def _as_in_frame(column: Column, frame_column: Column) -> Column:
    """A column of training, which may be a vector instead of an array in a frame."""
    if frame_column["depth"] != column["depth"] or not _casts(frame_column["dtype"], column["dtype"]):
        raise DataError("column %r of %s is of another kind than in training" % (column["name"], FRAME))
    return {**column, "vector": frame_column["vector"]}


def _applied(frame: DataFrame, function: str, indices: Sequence[int]) -> DataFrame:
    """`frame` with a function of SQL applied to the columns at these indices.

    Timestamps become numbers for Python and back: its own are local times, of which an hour occurs twice in autumn,
    and end with the year 9999.
    """
    if not indices:
        return frame
    names = ["c%d" % index for index in range(len(frame.columns))]
    values = ["%s(%s) %s" % (function, n, n) if i in indices else n for i, n in enumerate(names)]
    return frame.toDF(*names).selectExpr(*values).toDF(*frame.columns)


def _casts(dtype: str, trained: str) -> bool:
    """Whether values become those of training's dtype without a change of kind, as 1.5 to 1 or 2 to True would be.

    Whole numbers are of one kind, as Spark has no unsigned ones: packing refuses those that the type does not hold.
    """
    if "S" in (dtype, trained):
        return dtype == trained
    kinds = {np.dtype(dtype).kind, np.dtype(trained).kind}
    return kinds <= {"i", "u"} or np.can_cast(np.dtype(dtype), np.dtype(trained), "same_kind")


def check_frame(frame: DataFrame) -> None:
    if not is_spark(frame):
        raise DataError(
            "a %s is no Spark DataFrame: spark.createDataFrame makes one (%%ddl spark defines spark)"
            % type(frame).__qualname__
        )
    if frame.isStreaming:
        raise DataError(
            "%s streams: score each batch, with writeStream.foreachBatch(lambda batch, number: ...predict(batch)...)"
            % FRAME
        )


def _description(rows: Any, describe: Task) -> scorer.Description | None:
    """What the first row tells of the predictions. rows: an RDD."""
    try:
        descriptions = jvm_gateway.collect_until_interrupted(
            rows.mapPartitions(describe), "prediction of the first row"
        )
    except Exception as error:  # pyspark turns some of Java's exceptions into its own, and others not
        raise _cannot_be_scored(error) from error
    if descriptions and isinstance(descriptions[0], str):
        raise _cannot_be_scored(descriptions[0])
    return descriptions[0] if descriptions else None


def _cannot_be_scored(error: Exception | str) -> DataError:
    return DataError("%s cannot be scored: %s" % (FRAME, spark_error.cause(error)))
