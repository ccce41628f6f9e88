"""A Spark DataFrame as a folder of TFRecord files: Spark's executors make the records, and Spark writes them.

The files are written into a folder beside the named one, which then gets that name: readers find all of it or nothing.
`_index.json` in it tells what the files hold:

    {"format": 1, "compression": "gzip" or null, "columns": {NAME: "bytes", "float" or "int64"},
     "files": [{"name", "records", "bytes"}, ...]}
"""

from __future__ import annotations

import contextlib
import json
import types
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Sequence

from ..spark import jvm_gateway, spark_error
from . import by_value, tfrecord, tfrecord_encoding
from .columns import DataError, describe_columns, is_spark, session_of

if TYPE_CHECKING:
    from .records import Column, DataFrame

INDEX = "_index.json"
COMPRESSIONS = (None, "gzip")
_KINDS = {1: "bytes", 2: "float", 3: "int64"}


class Written(NamedTuple):
    """What a folder holds: rows, files, and their bytes together."""

    rows: int
    files: int
    bytes: int


def write(frame: DataFrame, uri: str, compression: str | None = None) -> Written:
    """Write the rows of a Spark DataFrame to the folder `uri`, which must not exist.

    Raises `DataError`, one line.
    """
    if not is_spark(frame):
        raise DataError("write_tfrecord takes a Spark DataFrame, not a %s" % type(frame).__qualname__)
    if compression not in COMPRESSIONS:
        raise DataError("write_tfrecord: compression is None or 'gzip', not %r" % compression)
    if frame.isStreaming:
        raise DataError("write_tfrecord cannot write a DataFrame that streams: write the batches of foreachBatch")
    columns = _columns(frame)
    try:
        session = session_of(frame)
        with jvm_gateway.cancelled_by_interrupt(session.sparkContext, "TFRecord files"):
            return _write(session, frame, columns, uri, compression)
    except DataError:
        raise
    except Exception as error:  # of Spark, of the storage or of a value
        raise DataError("write_tfrecord to %s: %s" % (uri, spark_error.cause(error))) from error


def _columns(frame: DataFrame) -> list[Column]:
    name, count = Counter(frame.columns).most_common(1)[0] if frame.columns else ("", 0)
    if count > 1:
        raise DataError("write_tfrecord: two columns are called %s; rename one" % name)
    try:
        columns = describe_columns("df", frame, frame.columns)
    except DataError as error:
        raise DataError("write_tfrecord: %s" % str(error).replace("leave it out of --features", "drop it")) from None
    nested = next((column["name"] for column in columns if column["depth"] > 1), None)
    if nested is not None:
        raise DataError("write_tfrecord: column %r has arrays of arrays, and TFRecord has none: flatten them" % nested)
    return columns


def _write(session: Any, frame: DataFrame, columns: Sequence[Column], uri: str, compression: str | None) -> Written:
    sc = session.sparkContext
    Path = sc._jvm.org.apache.hadoop.fs.Path
    target = Path(uri)
    storage = target.getFileSystem(sc._jsc.hadoopConfiguration())
    if storage.exists(target):
        raise DataError(_exists(uri))
    target = storage.makeQualified(target)
    aside = Path(target.getParent(), ".%s.%s" % (target.getName(), uuid.uuid4().hex[:8]))
    with _removed(storage, aside):
        counts = _write_lines(session, frame, columns, aside.toString(), compression)
        files = _rename_files(storage, aside, Path, counts, ".tfrecord.gz" if compression else ".tfrecord")
        sizes = [size for _, size in counts.values()]
        if len(files) != len(sizes) or (not compression and [file["bytes"] for file in files] != sizes):
            raise DataError("write_tfrecord to %s: Spark has not written the bytes that it was given" % uri)
        kinds = {column["name"]: _KINDS[tfrecord_encoding.kind_of(column)] for column in columns}
        index = {"format": 1, "compression": compression, "columns": kinds, "files": files}
        stream = storage.create(Path(aside, INDEX), True)
        stream.write(bytearray(json.dumps(index, indent=1).encode("utf-8")))
        stream.close()
        if storage.exists(target):  # a folder that is there would get the other one inside
            raise DataError(_exists(uri))
        if not storage.rename(aside, target):
            raise DataError("write_tfrecord: %s could not be given its name" % uri)
        inside = Path(target, aside.getName())
        if storage.exists(inside):  # it came between the two
            storage.delete(inside, True)
            raise DataError(_exists(uri))
    return Written(sum(records for records, _ in counts.values()), len(files), sum(file["bytes"] for file in files))


def _exists(uri: str) -> str:
    return "write_tfrecord: %s exists, and is not written over: name another folder" % uri


def _write_lines(
    session: Any, frame: DataFrame, columns: Sequence[Column], folder: str, compression: str | None
) -> dict[int, list[int]]:
    """Have Spark write the files: {partition: [records, bytes]}, of those with records, in their order."""
    from pyspark.sql import types as spark_types

    encode = by_value.functions_of(tfrecord_encoding)["encode"]
    shipped = by_value.functions_of(tfrecord)
    checksums, checksums_behind = shipped["checksums"], shipped["checksums_behind"]
    counts = session.sparkContext.accumulator({}, _merging())
    lines = frame.rdd.mapPartitionsWithIndex(
        lambda partition, rows: encode(partition, rows, columns, checksums, checksums_behind, counts.add)
    )
    schema = spark_types.StructType().add("line", spark_types.BinaryType())
    text = session.createDataFrame(lines, schema, None, False).selectExpr("cast(line as string) as line")
    options = {"lineSep": "\0", "compression": compression or "none", "maxRecordsPerFile": 0}
    text.write.options(**options).text(folder)
    by_partition = dict(counts.value)
    return {partition: by_partition[partition] for partition in sorted(by_partition) if by_partition[partition][0]}


def _merging() -> Any:
    """What adds dicts up, for an accumulator: a task that runs twice counts once. It travels by value."""
    functions: dict[str, Any] = {"__name__": "_ddl_by_value"}
    exec("def zero(value): return {}\ndef addInPlace(one, other): return {**one, **other}", functions)
    return types.SimpleNamespace(zero=functions["zero"], addInPlace=functions["addInPlace"])


def _rename_files(
    storage: Any, folder: Any, Path: Any, counts: dict[int, list[int]], suffix: str
) -> list[dict[str, Any]]:
    """Give Spark's files short names: what the index tells of them. Files without records are deleted."""
    files = []
    for status in storage.listStatus(folder):
        path = status.getPath()
        name = path.getName()
        if not name.startswith("part-"):
            continue
        partition = int(name.split("-")[1])
        if partition not in counts:
            storage.delete(path, False)
            continue
        short = "part-%05d%s" % (partition, suffix)
        storage.rename(path, Path(folder, short))
        files.append({"name": short, "records": counts[partition][0], "bytes": status.getLen()})
    return sorted(files, key=lambda file: str(file["name"]))


@contextlib.contextmanager
def _removed(storage: Any, folder: Any) -> Iterator[None]:
    """Removes what a failure leaves."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # the error before is the reason
            storage.delete(folder, True)
        raise
