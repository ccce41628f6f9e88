"""--data as files: Spark makes a DataFrame of them, wherever it can reach them.

Of Parquet and ORC it reads only the columns and parts of files that are needed; of TFRecord all, a file at a time. It
reads no rows where the ranks do so themselves (file_feed.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, Mapping

from ..spark import spark_error
from . import by_value, tfrecord
from .columns import DataError, is_spark

if TYPE_CHECKING:
    from .records import DataFrame

#: Spark's formats that have names and types of their columns, by the end of a file's name.
_FORMATS = {".parquet": "parquet", ".orc": "orc"}
#: What to do with files of others.
_OTHERS = {
    ".csv": "spark.read.csv(%r, header=True, inferSchema=True)",
    ".csv.gz": "spark.read.csv(%r, header=True, inferSchema=True)",
    ".json": "spark.read.json(%r)",
    ".jsonl": "spark.read.json(%r)",
}
#: In the last part of a path, which may be a pattern.
_TFRECORD = re.compile(r"\.tfrecords?(?![a-z])[^/]*$")
#: The columns of TFRecord files are those of so many Examples of the first file.
_FIRST_EXAMPLES = 100
#: Between the parts of a list of files, whose names may have commas.
_COMMA = re.compile(r",(?=[A-Za-z][\w+.-]*:/|/)")


def is_files(data: str) -> bool:
    """Whether the value of --data names files, and not a DataFrame."""
    return not data.isidentifier()


def paths(data: str) -> list[str]:
    """The files, folders and patterns of --data: with commas between them, each with its scheme or from the root."""
    return _COMMA.split(data)


def format_of(data: str) -> str:
    """The format of files by their names: "parquet", "orc" or "tfrecord". `DataError` where they have several."""
    found = {path: _format(path.rstrip("/").lower()) for path in paths(data)}
    first, *others = found
    other = next((path for path in others if found[path] != found[first]), None)
    if other is not None:
        words = found[first], first, found[other], other
        raise DataError("--data: files must have one format, and not be %s (%s) and %s (%s)" % words)
    return found[first]


def _format(path: str) -> str:
    if _TFRECORD.search(path):
        return "tfrecord"
    return next((kind for end, kind in _FORMATS.items() if path.endswith(end)), "parquet")


def other_format(uri: str) -> str | None:
    """What to do with files that are neither Parquet, ORC nor TFRecord by their name, in one line, or None."""
    for path in paths(uri):
        reader = next((reader for end, reader in _OTHERS.items() if path.rstrip("/").lower().endswith(end)), None)
        if reader is not None:
            return "--data %s: read it into a DataFrame first: df = %s, and --data df" % (uri, reader % path)
    return None


def read(session: Any, uri: str) -> DataFrame:
    """The DataFrame of files, folders or patterns of files: Parquet, or by the name ORC or TFRecord.

    session: a SparkSession. Spark reads the files' schema and no rows, but of TFRecord the first file. Raises
    `DataError`, one line.
    """
    advice = other_format(uri)
    if advice:
        raise DataError(advice)
    problem, kind = "--data %s cannot be read" % uri, format_of(uri)
    if kind == "tfrecord":
        return _in_one_line(problem, lambda: _read_tfrecord(session, uri))
    return _in_one_line(problem, lambda: session.read.format(kind).load(paths(uri)))


def binary_files(session: Any, uri: str) -> DataFrame:
    """The files as rows, with their whole content."""
    return session.read.format("binaryFile").load(paths(uri))


def _read_tfrecord(session: Any, uri: str) -> DataFrame:
    """ValueError, one line, where the files have no columns."""
    from pyspark.sql import types

    functions = by_value.functions_of(tfrecord)
    first_columns, rows = functions["first_columns"], functions["rows"]
    files = binary_files(session, uri).select("path", "content")
    first = files.select("path").orderBy("path").first()
    if first is None:
        raise ValueError("there is no file")
    examples = session.read.format("binaryFile").load(first[0]).select("path", "content").rdd
    columns = examples.map(lambda file: first_columns(file[1], file[0], _FIRST_EXAMPLES)).first()
    if not columns:
        raise ValueError("%s has no record with a value" % first[0])
    schema = types.StructType()
    for name, (kind, is_list) in columns.items():
        of_spark = getattr(types, tfrecord.KINDS[kind])()
        schema.add(name, types.ArrayType(of_spark) if is_list else of_spark)
    return session.createDataFrame(files.rdd.flatMap(lambda file: rows(file[1], file[0], columns)), schema, None, False)


def where(name: str, frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which a condition of Spark SQL is true. Raises `DataError`, one line."""
    if not is_spark(frame):
        raise DataError(
            "--where is for Spark's DataFrames and for files: filter pandas' yourself: %s = %s.query(%r)"
            % (name, name, condition)
        )
    return _in_one_line("--where %s" % condition, lambda: frame.where(condition))


def _in_one_line(what: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:  # of Spark's parser or analysis, of a file system or of its Java
        raise DataError("%s: %s" % (what, spark_error.cause(error))) from error


def opened(session: Any, spec: Mapping[str, Any], namespace: Mapping[str, Any]) -> Mapping[str, Any]:
    """`namespace` with the DataFrame of the files under the name that --data gives them."""
    uri = str(spec["data"])
    return {**namespace, uri: read(session, uri)} if is_files(uri) else namespace
