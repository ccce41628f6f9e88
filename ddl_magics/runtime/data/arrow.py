"""Packing by Arrow: Spark hands over columns where its executors have pyarrow, which takes less time than rows."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Sequence

from ..spark import jvm_gateway, located
from .columns import numbered, session_of

if TYPE_CHECKING:
    from ..spark.pyspark_types import Rdd, SparkContext
    from .packing import Record
    from .records import Column, DataFrame, SeriesColumns

#: Of pyspark, which has no types here.
DataType = Any

#: From so many columns on they go through Spark as one, a struct: pyspark takes 10 ms to look up one of 3,000. Narrow
#: rows would take a third longer so.
WIDE = 300
#: Spark's setting: rows of a batch; 0: those of the partition.
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: Bytes of a batch, which the JVM and Python each have in memory. Larger rows go one by one.
MOST_BYTES = 256 << 20
#: Names of Spark's types whose values JSON has.
_OF_JSON = {"byte", "short", "integer", "long", "float", "double", "boolean", "string"}
#: Names of Spark's types.
_TRAVELS = {"byte", "short", "integer", "long", "float", "double", "boolean", "string", "date", "decimal"}

#: Spark's: of an application, whether all of its executors had pyarrow.
_executors_have_pyarrow: dict[str, bool] = {}


def is_apt(column: Column) -> bool:
    """Whether a column has numbers, or arrays of them, of a type that NumPy and Arrow share."""
    return not column["vector"] and column["dtype"] != "S"


def _with_arrays(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """`frame`, whose first columns are these, with arrays for vectors of Spark ML: Arrow does not take vectors."""
    if not any(column["vector"] for column in columns):
        return frame
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql.functions import col, when

    frame = numbered(frame)
    vectors = [name for name, column in zip(frame.columns, columns) if column["vector"]]
    return frame.withColumns({name: when(col(name).isNotNull(), vector_to_array(name)) for name in vectors})


def travels(kind: DataType) -> bool:
    """Whether a column of this type of Spark is the same after its way to Python and back, as Arrow.

    Maps and ML vectors are not, and a timestamp within an array or struct depends on the session's time zone. Binary
    values, as of files, may be too large for a batch.
    """
    name = kind.typeName()
    if name == "array":
        return travels(kind.elementType)
    if name == "struct":
        return all(travels(field.dataType) for field in kind.fields)
    return name in _TRAVELS


def takes(frame: DataFrame, columns: Sequence[Column]) -> bool:
    """Whether `packed` takes `frame`, whose first columns are these; others are keys of time series, for a report.

    An array counts as one number for the size of a batch: nothing tells its length before.
    """
    fields = frame.schema.fields
    apt = (is_apt(column) or (column["vector"] and not column.get("sparse")) for column in columns)
    keys_are_apt = all(key.dataType.typeName() in _OF_JSON for key in fields[len(columns) :])
    return all(apt) and keys_are_apt and fits(frame, 8 * len(fields))


def fits(frame: DataFrame, row_bytes: int) -> bool:
    """Whether a batch of rows of `frame` has `MOST_BYTES` at most. row_bytes: of a row, as far as it is known."""
    rows = int(session_of(frame).conf.get(BATCH_ROWS, "10000") or 0)
    return 0 < row_bytes * rows <= MOST_BYTES


def is_everywhere(sc: SparkContext, group: str) -> bool:
    """Whether Spark's version, the driver and all hosts of executors have what it needs. A Spark job, once."""
    if sc.applicationId not in _executors_have_pyarrow:
        _executors_have_pyarrow[sc.applicationId] = _driver_has_it() and _hosts_have_it(sc, group)
    return _executors_have_pyarrow[sc.applicationId]


def _driver_has_it() -> bool:
    """pyspark asks for pandas, too, and says itself which versions it takes."""
    if not all(map(importlib.util.find_spec, ("pyarrow", "pandas"))):
        return False
    from pyspark.sql import DataFrame

    return hasattr(DataFrame, "mapInArrow")


def _hosts_have_it(sc: SparkContext, group: str) -> bool:
    def find(_: object) -> Iterator[bool]:  # no import, which takes long: if it fails later, rows are used
        from importlib.util import find_spec

        yield find_spec("pyarrow") is not None

    rdd: Rdd = located.partitions(sc, [[host] for host in located.hosts(sc)])
    try:
        return all(jvm_gateway.collect(rdd.mapPartitions(find), group, "whether executors have pyarrow"))
    except Exception:  # Py4J's, of many kinds: rows work
        return False


def mapped(frame: DataFrame, function: Callable[[Iterable[Any]], Iterator[Any]], schema: Any) -> DataFrame:
    """`frame.mapInArrow`, of columns with any name, and of many: pyspark looks each of them up by its name."""
    frame = numbered(frame)
    names = frame.columns
    if len(names) < WIDE:
        return frame.mapInArrow(function, schema)

    def of_rows(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        structs = (batch.column(0) for batch in batches)
        return function(pyarrow.RecordBatch.from_arrays(rows.flatten(), names) for rows in structs)

    return frame.selectExpr("struct(*) as row").mapInArrow(of_rows, schema)


def packed(
    sc: SparkContext,
    group: str,
    pack_batches: Callable[..., Iterator[Record]],
    frame: DataFrame,
    columns: Sequence[Column],
    tensors: Sequence[Sequence[int]],
    series: SeriesColumns | None,
) -> Rdd:
    """The records of a Spark DataFrame, as `packing.pack` makes them. pack_batches: `packing.pack_batches`, shipped."""

    def pack(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        for partition, chunk, report, blob in pack_batches(task.partitionId(), batches, columns, tensors, series):
            texts = pyarrow.array([json.dumps(report)], pyarrow.string())
            numbers = (pyarrow.array([number], pyarrow.int32()) for number in (partition, chunk))
            blobs = pyarrow.array([blob], pyarrow.binary())
            yield pyarrow.RecordBatch.from_arrays([*numbers, texts, blobs], ["partition", "chunk", "report", "blob"])

    records = mapped(_with_arrays(frame, columns), pack, "partition int, chunk int, report string, blob binary")
    rows = jvm_gateway.dataframe_rdd(records, sc, group)
    return rows.map(lambda row: (row[0], row[1], json.loads(row[2]), bytes(row[3])))
