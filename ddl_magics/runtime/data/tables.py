"""--data as a table of Delta, Iceberg or Hudi, whose files alone do not tell its rows: they have removed ones, too.

Spark reads a table where its session has the table's package. Without it, a Delta table is what the Python package
deltalake lists: files, which are read as any other ones. A table that needs more than its files, as for deletion
vectors and renamed columns, is Spark's alone.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Iterator

from ..spark import spark_error
from .columns import DataError

if TYPE_CHECKING:
    from .records import DataFrame

#: What the folder of a table has that says which of its files have rows of today, and Spark's format of the table.
MARKERS = {"_delta_log": "delta", ".hoodie": "hudi", "metadata/{v[0-9]*,[0-9]*-*}.metadata.json": "iceberg"}
#: Spark's option that reads an earlier version.
_VERSION_OPTIONS = {"delta": "versionAsOf", "iceberg": "snapshot-id"}
_PACKAGES = {"delta": "io.delta:delta-spark", "hudi": "org.apache.hudi:hudi-spark", "iceberg": "iceberg-spark-runtime"}
_VERSION = re.compile(r"(.+)@v([0-9]+)$")
_NO_PACKAGE = ("Failed to find data source", "DATA_SOURCE_NOT_FOUND", "ClassNotFoundException")


def without_version(uri: str) -> tuple[str, int | None]:
    """(folder, version) of FOLDER@vN; a name without a version as it is."""
    match = _VERSION.match(uri)
    return (uri, None) if match is None else (match[1], int(match[2]))


def read(session: Any, table: str, folder: str, version: int | None) -> tuple[DataFrame, bool]:
    """The rows of a table, today or in a version; and whether its files have these rows and no others.

    Raises:
        DataError: one line.
    """
    uri = folder if version is None else "%s@v%d" % (folder, version)
    if version is not None and table not in _VERSION_OPTIONS:
        raise DataError("--data %s: of %s no version can be named: leave out @v%d" % (uri, table.capitalize(), version))
    options = {} if version is None else {_VERSION_OPTIONS[table]: version}
    try:
        return session.read.format(table).options(**options).load(folder), False
    except Exception as error:  # Py4J's, of many kinds
        if not any(text in str(error) for text in _NO_PACKAGE):
            raise DataError("--data %s cannot be read: %s" % (uri, spark_error.cause(error))) from error
    remedy = "start Spark with its package (spark.jars.packages %s)" % _PACKAGES[table]
    if table == "delta":
        try:
            from deltalake import DeltaTable
        except ImportError:
            remedy += ", or install deltalake into its Python"
        else:
            return _of_files(session, uri, folder, DeltaTable, version), True
    raise DataError("--data %s: files of %s have removed rows, too: %s" % (uri, table.capitalize(), remedy))


def reader_code(table: str, folder: str, version: int | None) -> str:
    """The code that reads a table into a DataFrame of Spark."""
    option = "" if version is None else ".option(%r, %d)" % (_VERSION_OPTIONS[table], version)
    return "spark.read.format(%r)%s.load(%r)" % (table, option, folder)


def _of_files(session: Any, uri: str, folder: str, DeltaTable: Any, version: int | None) -> DataFrame:
    """The files of a Delta table that has its rows there and nowhere else."""
    from pyspark.sql import types

    try:
        # Hadoop writes file:/t, and others understand file:///t alone.
        opened = DeltaTable(re.sub(r"^file:/+", "/", folder), version=version)
        protocol, schema = opened.protocol(), json.loads(opened.schema().to_json())
        files = list(_relative(opened))
    except Exception as error:  # of Rust
        raise DataError("--data %s cannot be read by deltalake: %s" % (uri, " ".join(str(error).split()))) from error
    if protocol.min_reader_version > 1:
        features = ", ".join(sorted(protocol.reader_features or ())) or "renamed columns"
        needed = "start Spark with its package (spark.jars.packages %s)" % _PACKAGES["delta"]
        raise DataError("--data %s is of Delta with %s: %s" % (uri, features, needed))
    columns = types.StructType.fromJson(schema)
    if not files:
        return session.createDataFrame([], columns)
    base = folder.rstrip("/")
    return session.read.schema(columns).option("basePath", base).parquet(*("%s/%s" % (base, file) for file in files))


def _relative(table: Any) -> Iterator[str]:
    """The table's files, as they are called below its folder."""
    base = str(table.table_uri).rstrip("/") + "/"
    base = base[len("file://") :] if base.startswith("file://") else base
    for uri in table.file_uris():
        path = uri[len("file://") :] if uri.startswith("file://") else uri
        if not path.startswith(base):
            raise ValueError("it has files outside of its folder")
        yield re.sub(r"([\\*?\[\]{}])", r"\\\1", path[len(base) :])
