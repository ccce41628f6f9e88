"""A DataFrame in the order of its time series, for --sequence-length, each row with what tells its series and place.

Spark sorts by ranges of (--group-by, --order-by), so that the partitions are in order, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from .columns import DataError, is_spark, pandas_column, quoted

if TYPE_CHECKING:
    from .records import DataFrame
    from .sequences import SequencePlan

#: Partitions of sorted rows, per worker.
PARTITIONS_PER_WORKER = 4
#: Spark's names of the types that a date can be compared with.
_DATES = "date", "timestamp", "timestamp_ntz", "string"
#: Those of the types whose values have an order that a forecast can mean.
_ORDERED = "byte", "short", "integer", "long", "float", "double", "decimal", *_DATES


def _no_date(plan: SequencePlan, kind: object) -> DataError:
    return DataError(
        "--validation %s: column %r of --order-by is of type %s, and not a date: give a share of the windows, such as "
        "0.2, or a DataFrame" % (plan.since, plan.order_by, kind)
    )


def _no_order(option: str, column: str, name: str, kind: object) -> DataError:
    return DataError("%s %s: %s has values of type %s there, which have no order" % (option, column, name, kind))


def sort_spark(name: str, frame: DataFrame, names: Sequence[str], plan: SequencePlan, size: int) -> DataFrame:
    """The columns `names` and the series' columns, sorted. Raises `DataError`, one line."""
    from pyspark.sql import functions

    def column(name: str) -> Any:
        return functions.col(quoted(name))

    kind, order = frame.schema[plan.order_by].dataType, column(plan.order_by)
    if kind.typeName() not in _ORDERED:
        raise _no_order("--order-by", plan.order_by, name, kind.simpleString())
    for group in plan.group_by:
        if frame.schema[group].dataType.typeName() not in (*_ORDERED, "boolean"):
            raise _no_order("--group-by", group, name, frame.schema[group].dataType.simpleString())
    early = functions.lit(True)
    if plan.since is not None:
        if kind.typeName() not in _DATES:
            raise _no_date(plan, kind.simpleString())
        early = order < functions.lit(plan.since).cast(kind)
    # Python would read a timestamp in its own time zone, where an hour of autumn is there twice.
    key = order.cast("double") if kind.typeName() == "timestamp" else order
    keys = [column(group).alias("group_%d" % i) for i, group in enumerate(plan.group_by)] + [key.alias("order_by")]
    values = [column(value_name).alias("value_%d" % i) for i, value_name in enumerate(names)]
    selected = frame.select(*values, *keys, early.alias("early"))
    by = selected.columns[len(names) : -1]
    return selected.repartitionByRange(PARTITIONS_PER_WORKER * size, *by).sortWithinPartitions(*by)


def sort_pandas(name: str, frame: DataFrame, plan: SequencePlan) -> DataFrame:
    """The frame sorted. Raises `DataError`, one line."""
    column_names = [str(column) for column in frame.columns]
    keys = frame.iloc[:, [column_names.index(column) for column in (*plan.group_by, plan.order_by)]]
    keys = keys.set_axis(range(len(keys.columns)), axis=1).reset_index(drop=True)
    kinds = _kinds(pandas_column(frame, plan.order_by))
    if len(kinds) > 1:  # which pandas would sort by their kind
        raise _no_order("--order-by", plan.order_by, name, " and ".join(kinds))
    if plan.since is not None:
        _early(pandas_column(frame, plan.order_by), plan)
    return frame.iloc[keys.sort_values(list(keys.columns), kind="stable").index.to_numpy()]


def _kinds(column: Any) -> list[str]:
    """The types of the values of a column of Python objects, or of text."""
    return sorted({type(value).__name__ for value in column.dropna()}) if column.dtype.kind == "O" else []


def is_text(frame: DataFrame, order_by: str) -> bool:
    """Whether the values of the column are text, whose order is that of its characters."""
    if is_spark(frame):
        return bool(frame.schema[order_by].dataType.typeName() == "string")
    return _kinds(pandas_column(frame, order_by)) == ["str"]


def pandas_keys(rows: DataFrame, plan: SequencePlan) -> list[tuple[Any, ...]]:
    """Of each row of a sorted frame: its group's values, the value of --order-by, and whether it is early."""
    columns = [pandas_column(rows, name) for name in (*plan.group_by, plan.order_by)]
    values = [column.astype(object).where(column.notna(), None).tolist() for column in columns]
    return list(zip(*values, _early(columns[-1], plan)))


def _early(order: Any, plan: SequencePlan) -> list[bool]:
    if plan.since is None:
        return [True] * len(order)
    if order.dtype.kind == "M":  # pandas reads the date, in the column's time zone
        return [bool(value) for value in order < plan.since]
    if _kinds(order) in (["str"], []) and order.dtype.kind == "O":
        return [isinstance(value, str) and value < plan.since for value in order]
    raise _no_date(plan, order.dtype)
