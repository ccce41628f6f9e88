"""The columns of a DataFrame: their names are checked, their types understood, and tensors made of them."""

from __future__ import annotations

import contextlib
import difflib
from collections import Counter
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

import numpy as np

from ..spark import jvm_gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .records import Column, DataFrame

#: Spark's name of a type -> the numpy type that holds it. "S" is text or binary of any length.
_SPARK_TYPES = {
    "byte": "i1",
    "short": "i2",
    "integer": "i4",
    "long": "i8",
    "float": "f4",
    "double": "f8",
    "decimal": "f8",
    "boolean": "?",
    "string": "S",
    "binary": "S",
}
#: NumPy's dtype -> the type of Spark's SQL that holds its values.
SQL_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "object": "string",
}


#: In the metadata that Spark keeps of a column: why it is no feature as it is, and what to do.
PROBLEM = "ddl_magics.problem"


class DataError(ValueError):
    """--data cannot be used: one line that names the column or DataFrame and what to do."""


def is_spark(value: Any) -> bool:
    """True for a pyspark DataFrame."""
    return type(value).__module__.startswith("pyspark.sql.") and hasattr(value, "schema") and hasattr(value, "select")


def is_pandas(value: Any) -> bool:
    """True for a pandas DataFrame."""
    return type(value).__module__.startswith("pandas.") and hasattr(value, "iloc") and hasattr(value, "columns")


def _nearest_frame(name: str, namespace: Mapping[str, Any]) -> str | None:
    """The name of the DataFrame in `namespace` that `name` may have meant, or None."""
    frames = [
        key for key, value in namespace.items() if not key.startswith("_") and (is_spark(value) or is_pandas(value))
    ]
    matches = difflib.get_close_matches(name, frames, 1)
    return matches[0] if matches else (frames[0] if len(frames) == 1 else None)


def frame_named(option: str, name: str, namespace: Mapping[str, Any]) -> DataFrame:
    """The DataFrame called `name`. Raises `DataError` with the nearest right name."""
    if name not in namespace:
        nearest = _nearest_frame(name, namespace)
        hint = "; did you mean %r?" % nearest if nearest else ""
        raise DataError("%s %s: there is no such DataFrame in the session%s" % (option, name, hint))
    check_frame(option, name, namespace[name])
    return namespace[name]


def check_frame(option: str, name: str, value: Any) -> None:
    """Raises `DataError` where `value` is neither a Spark nor a pandas DataFrame."""
    if not is_spark(value) and not is_pandas(value):
        kind = type(value)
        hint = "; call .to_spark() on it" if kind.__module__.startswith("pyspark.pandas") else ""
        raise DataError(
            "%s %s is a %s, and must be a Spark or a pandas DataFrame%s" % (option, name, kind.__qualname__, hint)
        )


def check_column(option: str, column: str, frame_name: str, names: Sequence[str]) -> None:
    """Raises `DataError` where a frame with the columns `names` has not one of that name."""
    if column not in names:
        lower = {name.lower(): name for name in reversed(names)}
        matches = difflib.get_close_matches(column.lower(), lower, 1)
        omitted = ", ... (%d in all)" % len(names) if len(names) > 8 else ""
        hint = "it has " + ", ".join(names[:8]) + omitted
        if matches:
            name = lower[matches[0]]
            hint = "did you mean %r?" % name
            if "," in name:
                hint += " Write '%s', with the quotes" % name.replace(",", "\\,")
        raise DataError("%s %s: %s has no such column; %s" % (option, column, frame_name, hint))
    if names.count(column) > 1:
        raise DataError("%s %s: %s has more than one column of that name; rename one" % (option, column, frame_name))


def in_pieces(typed: Sequence[str], names: Sequence[str]) -> str | None:
    """The column, if any, whose words were typed one by one: ("mean", "radius") for "mean radius"."""
    for begin in range(len(typed)):
        for end in range(begin + 2, len(typed) + 1):
            if " ".join(typed[begin:end]) in names:
                return " ".join(typed[begin:end])
    return None


def check_columns(option: str, columns: Sequence[str], frame_name: str, names: Sequence[str]) -> None:
    """`check_column` of each, in a time that grows with their number, and not with its square."""
    counts = Counter(names)
    for column in columns:
        whole = None if counts[column] else in_pieces(columns, names)
        if whole:
            raise DataError(
                "%s %s: %s has no such column; did you mean %r? Quote it" % (option, column, frame_name, whole)
            )
        if counts[column] != 1:
            check_column(option, column, frame_name, names)


def session_of(frame: DataFrame) -> SparkSession:
    """The SparkSession of a DataFrame."""
    session: SparkSession = frame.sparkSession if hasattr(frame, "sparkSession") else frame.sql_ctx.sparkSession
    return session


def selected(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """The columns of a Spark DataFrame with these names, in their order; at least one."""
    first_name, *other_names = map(quoted, names)
    if not other_names:
        return frame.select(first_name)
    return _of_java(frame, frame._jdf.select(first_name, jvm_gateway.strings(session_of(frame)._jvm, other_names)))


def numbered(frame: DataFrame) -> DataFrame:
    """A Spark DataFrame with the names c0, c1, ...: Spark does not find one with a dot, or that is there twice."""
    names = ["c%d" % number for number in range(len(frame.columns))]
    return _of_java(frame, frame._jdf.toDF(jvm_gateway.strings(session_of(frame)._jvm, names)))


def _of_java(frame: DataFrame, java_frame: Any) -> DataFrame:
    """java_frame: made of that of `frame`. Before Spark 3.3, pyspark's frames have an SQLContext for a session."""
    return type(frame)(java_frame, frame.sparkSession if hasattr(frame, "sparkSession") else frame.sql_ctx)


def check_case(frame_name: str, frame: DataFrame, column_names: Sequence[str]) -> None:
    """Raises `DataError` where Spark cannot tell one of these columns from another one by its name."""
    if not is_spark(frame) or session_of(frame).conf.get("spark.sql.caseSensitive", "false") == "true":
        return
    by_name: dict[str, str] = {}
    for name in frame.columns:
        same_name = by_name.setdefault(name.lower(), name)
        if same_name != name and {name, same_name} & set(column_names):
            raise DataError(
                "%s has columns %r and %r, which are one name for Spark: rename one, or set "
                "spark.conf.set('spark.sql.caseSensitive', 'true')" % (frame_name, same_name, name)
            )


def describe(frame_name: str, frame: DataFrame, name: str, reader_code: str = "") -> Column:
    """How the column `name` is read, from the type that Spark or pandas gives it.

    Raises `DataError` for a type that no tensor can hold. Values are not looked at but for pandas' object columns.
    reader_code: the expression that makes the frame, where it is of files.
    """
    return describe_columns(frame_name, frame, [name], reader_code)[0]


def describe_columns(frame_name: str, frame: DataFrame, names: Sequence[str], reader_code: str = "") -> list[Column]:
    """`describe` of each."""
    if is_spark(frame):
        fields = {field.name: field for field in frame.schema.fields}
        return [_describe_spark(frame_name, fields[name], reader_code) for name in names]
    return [_describe_pandas(frame_name, series, name) for name, series in zip(names, pandas_columns(frame, names))]


def describable(frame_name: str, frame: DataFrame) -> dict[str, Column]:
    """`describe` of the columns of a Spark DataFrame that a tensor can hold."""
    columns = {}
    for field in frame.schema.fields:
        with contextlib.suppress(DataError):
            columns[field.name] = _describe_spark(frame_name, field, "")
    return columns


def _unsupported(frame_name: str, name: str, kind: object, example: str = "") -> DataError:
    """example: the expression for a column of numbers that has what this one has."""
    remedy = "numbers, texts or arrays of them"
    if example:
        remedy = "numbers, as in %s" % example
    return DataError(
        "column %r of %s is of type %s: turn it into %s, or leave it out of --features"
        % (name, frame_name, kind, remedy)
    )


def _describe_spark(frame_name: str, field: Any, reader_code: str) -> Column:
    """field: of Spark's schema."""
    name, kind, depth = field.name, field.dataType, 0
    if type(kind).__name__ == "VectorUDT":
        return {"name": name, "dtype": "f8", "depth": 1, "vector": True}
    while kind.typeName() == "array":
        kind, depth = kind.elementType, depth + 1
    if kind.typeName() not in _SPARK_TYPES:
        seconds = ""
        if not depth and kind.typeName() in ("date", "timestamp", "timestamp_ntz"):
            variable = "df" if reader_code else frame_name
            words = variable, variable, name, variable, name if name.isidentifier() else quoted(name)
            seconds = "%s = %s.withColumn(%r, %s[%r].cast('timestamp').cast('double'))" % words
            if reader_code:
                seconds = "df = %s; %s, and --data df" % (reader_code, seconds)
        raise _unsupported(frame_name, name, kind.simpleString(), seconds)
    problem = field.metadata.get(PROBLEM)
    if problem:
        raise DataError("column %r of %s %s" % (name, frame_name, problem))
    column: Column = {"name": name, "dtype": _SPARK_TYPES[kind.typeName()], "depth": depth, "vector": False}
    return {**column, "scale": kind.scale} if kind.typeName() == "decimal" else column


def _describe_pandas(frame_name: str, series: Any, name: str) -> Column:
    # The dtype of an extension type (Int64, boolean, string) says what it holds; missing values are found when packing.
    dtype = getattr(series.dtype, "numpy_dtype", series.dtype)
    if isinstance(dtype, np.dtype) and dtype.kind in "iufb":
        return {"name": name, "dtype": dtype.str, "depth": 0, "vector": False}
    if getattr(dtype, "kind", "O") in "mM":
        since = ""
        if dtype.kind == "M":
            zone = "" if series.dt.tz is None else ", tz=%s[%r].dt.tz" % (frame_name, name)
            since = " - pd.Timestamp(0%s)" % zone
        example = "%s[%r] = (%s[%r]%s).dt.total_seconds()" % (frame_name, name, frame_name, name, since)
        raise _unsupported(frame_name, name, series.dtype, example)
    if (isinstance(dtype, np.dtype) and dtype.kind != "O") or str(series.dtype) == "category":
        raise _unsupported(frame_name, name, series.dtype)
    return _describe_objects(frame_name, series, name)


def _describe_objects(frame_name: str, series: Any, name: str) -> Column:
    """By the first value of a column of Python objects; if it has whole numbers, by all values."""
    present = series.dropna()
    if not len(present):
        raise DataError("column %r of %s has no values at all: fill or drop it" % (name, frame_name))
    value, depth = present.iloc[0], 0
    if hasattr(value, "toArray"):
        return {"name": name, "dtype": "f8", "depth": 1, "vector": True}
    if isinstance(value, (list, tuple, np.ndarray)) and not len(value):
        value = next((value for value in present if len(value)), value)
    while isinstance(value, (list, tuple, np.ndarray)):
        if not len(value):
            raise DataError("column %r of %s holds empty arrays" % (name, frame_name))
        value, depth = value[0], depth + 1
    dtype = np.asarray(value).dtype
    if dtype.kind in "iub":
        dtype = _common_dtype(present, dtype)
    if dtype.kind not in "iufbUS":
        raise _unsupported(frame_name, name, type(value).__name__)
    return {"name": name, "dtype": "S" if dtype.kind in "US" else dtype.str, "depth": depth, "vector": False}


def _common_dtype(values: Any, default: np.dtype) -> np.dtype:
    """Which holds all values, numbers or nested lists of them: 1 and 2.5 are floats.

    It is `default` where NumPy knows none, of missing values or lists of several lengths: packing says what is wrong.
    """
    try:
        dtype = np.result_type(*{array.dtype for array in map(np.asarray, values) if array.size})
    except (TypeError, ValueError):
        return default
    return dtype if dtype.kind in "iufb" else default


def pandas_column(frame: DataFrame, name: str) -> Any:
    """A column by the text of its name: pandas' names may be numbers."""
    return next(pandas_columns(frame, [name]))


def pandas_columns(frame: DataFrame, names: Sequence[str]) -> Iterator[Any]:
    """`pandas_column` of each."""
    positions = {str(column): position for position, column in enumerate(frame.columns)}
    return (frame.iloc[:, positions[name]] for name in names)


def pandas_values(series: Any) -> np.ndarray:
    """A column's values, 1-D: of a number's dtype where pandas has one, else of objects, None where one is missing."""
    if not isinstance(series.dtype, np.dtype) or series.dtype.kind == "O":
        series = series.astype(object).where(series.notna(), None)
    return np.asarray(series.to_numpy())


def quoted(name: str) -> str:
    """The name of a column in Spark's SQL."""
    return "`%s`" % name.replace("`", "``")


def check_weight(column: Column) -> None:
    """Raises `DataError` where a column's values cannot be weights."""
    if column["depth"] or column["dtype"] == "S":
        contents = "arrays" if column["depth"] else "text"
        raise DataError("--weight %s is a column of %s, and must be one of numbers" % (column["name"], contents))
