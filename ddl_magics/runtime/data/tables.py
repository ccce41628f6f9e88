"""--data as a table of Delta, Iceberg or Hudi, whose files alone do not tell its rows: they have removed ones, too.

Spark reads a table where its session has the table's package. Without it, a table is what a Python package lists, of
Delta deltalake and of Iceberg pyiceberg: files, which are read as any other ones. A table that needs more than its
files, as for deletion vectors and renamed columns, is Spark's alone.
"""

from __future__ import annotations

import importlib
import json
import re
from typing import TYPE_CHECKING, Any, Iterable

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
_OF_CATALOG = (
    "--data %s: the folder does not say which rows the Iceberg table has today, its catalog does: "
    "df = spark.read.table(NAME), and --data df"
)
_NO_TABLE = re.compile("TABLE_OR_VIEW_NOT_FOUND|Table or view not found|Table does not exist")
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
        if table == "iceberg" and _NO_TABLE.search(str(error)):
            raise DataError(_OF_CATALOG % uri) from error
        if not any(text in str(error) for text in _NO_PACKAGE):
            raise DataError("--data %s cannot be read: %s" % (uri, spark_error.cause(error))) from error
    remedy = "start Spark with its package (spark.jars.packages %s)" % _PACKAGES[table]
    if table in _LISTED:
        package, of_files = _LISTED[table]
        try:
            importlib.import_module(package)
        except ImportError:
            remedy += ", or install %s into its Python" % package
        else:
            return of_files(session, uri, folder, version), True
    raise DataError("--data %s: files of %s have removed rows, too: %s" % (uri, table.capitalize(), remedy))


def reader_code(table: str, folder: str, version: int | None) -> str:
    """The code that reads a table into a DataFrame of Spark."""
    option = "" if version is None else ".option(%r, %d)" % (_VERSION_OPTIONS[table], version)
    return "spark.read.format(%r)%s.load(%r)" % (table, option, folder)


def _of_delta(session: Any, uri: str, folder: str, version: int | None) -> DataFrame:
    """The files of a Delta table that has its rows there and nowhere else."""
    from deltalake import DeltaTable
    from pyspark.sql import types

    try:
        # Hadoop writes file:/t, and others understand file:///t alone.
        opened = DeltaTable(_path(folder), version=version)
        protocol, schema = opened.protocol(), json.loads(opened.schema().to_json())
        files = _below(str(opened.table_uri), opened.file_uris())
    except Exception as error:  # of Rust
        raise _unreadable(uri, "deltalake", error) from error
    if protocol.min_reader_version > 1:
        raise _sparks_alone(uri, "delta", ", ".join(sorted(protocol.reader_features or ())) or "renamed columns")
    columns = types.StructType.fromJson(schema)
    if not files:
        return session.createDataFrame([], columns)
    base = folder.rstrip("/")
    return session.read.schema(columns).option("basePath", base).parquet(*("%s/%s" % (base, file) for file in files))


def _of_iceberg(session: Any, uri: str, folder: str, version: int | None) -> DataFrame:
    """The files of an Iceberg table that has its rows there and nowhere else, and whose columns never changed.

    Only a table of Hadoop's says in its folder which of its metadata are of today.
    """
    from pyiceberg.table import StaticTable

    try:
        opened = StaticTable.from_metadata(re.sub(r"^file:/+", "file:///", folder))
        if version is not None and opened.snapshot_by_id(version) is None:  # pyiceberg would find no rows in it
            raise ValueError("there is no snapshot %d" % version)
        tasks = list(opened.scan(snapshot_id=version).plan_files())
        files = _below(opened.location(), (task.file.file_path for task in tasks))
    except FileNotFoundError as error:  # metadata/version-hint.text
        raise DataError(_OF_CATALOG % uri) from error
    except Exception as error:  # of many kinds
        raise _unreadable(uri, "pyiceberg", error) from error
    reasons = {
        "removed rows": any(task.delete_files for task in tasks),
        "columns that have changed": len(opened.schemas()) > 1,
        "imported files": "schema.name-mapping.default" in opened.properties,
        "other files than Parquet": any(task.file.file_format.name != "PARQUET" for task in tasks),
    }
    if any(reasons.values()):
        raise _sparks_alone(uri, "iceberg", next(reason for reason, applies in reasons.items() if applies))
    if not files:
        raise DataError("--data %s has no rows" % uri)
    # Folders with names of partitions are no columns here: Iceberg has these in its files.
    return session.read.parquet(*("%s/%s" % (folder.rstrip("/"), file) for file in files))


#: Table -> the Python package that lists its files, and the function that reads them.
_LISTED = {"delta": ("deltalake", _of_delta), "iceberg": ("pyiceberg", _of_iceberg)}


def _unreadable(uri: str, package: str, error: Exception) -> DataError:
    return DataError("--data %s cannot be read by %s: %s" % (uri, package, " ".join(str(error).split())))


def _sparks_alone(uri: str, table: str, reason: str) -> DataError:
    needed = "start Spark with its package (spark.jars.packages %s)" % _PACKAGES[table]
    return DataError("--data %s is of %s with %s: %s" % (uri, table.capitalize(), reason, needed))


def _below(folder: str, uris: Iterable[str]) -> list[str]:
    """Files of a folder, as they are called below it, for Hadoop, which takes names for patterns."""
    base, names = _path(folder).rstrip("/") + "/", []
    for path in map(_path, uris):
        if not path.startswith(base):
            raise ValueError("it has files outside of its folder")
        names.append(re.sub(r"([\\*?\[\]{}])", r"\\\1", path[len(base) :]))
    return names


def _path(uri: str) -> str:
    return re.sub(r"^file:/+", "/", uri)
