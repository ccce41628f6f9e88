"""--data of files that the ranks read themselves: Spark lists them, and no row passes through it.

An index is made of the files, on the executors: which rows each has. The rows are numbered in the order of the files'
names, and go to the same places as rows that Spark deals (feed.py). file_share.py is the ranks' side. Each rank goes
through all files and keeps its own rows: reading is so much cheaper than Spark's way that this pays for some ranks.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Sequence

import numpy as np

from ..run_spec import RunSpec
from ..spark import jvm_gateway, slots, spark_error
from . import by_value, conditions, feed, file_systems, packing, parquet, roles, tfrecord
from .columns import DataError, describable
from .feed import Feed

if TYPE_CHECKING:
    from ..spark.pyspark_types import SparkContext
    from .plan import DataPlan
    from .records import Column, Condition, FeedRecord, FileRows, PackReport
    from .sources import FileSource

#: More ranks than these would read more than Spark's one pass costs.
MOST_RANKS = 16
#: Their names travel to each rank.
MOST_FILES = 20_000
#: How long an executor may take to find a file.
FIND_SECONDS = 30.0


@dataclass(frozen=True)
class Files:
    """What --data names. conditions: of --where; None where it is not as simple."""

    format: Literal["parquet", "tfrecord"]
    uris: list[str]
    conditions: list[Condition] | None


def listed(source: FileSource | None, spec: RunSpec, plan: DataPlan) -> Files | None:
    """The files of --data, or None where it names none that ranks could read."""
    condition = spec.where
    if source is None or source.format not in ("parquet", "tfrecord"):
        return None
    if source.format == "tfrecord":
        return Files("tfrecord", source.uris(), None if condition else [])
    return Files(
        "parquet", source.uris(), conditions.read(condition, describable(plan.name, plan.frame)) if condition else []
    )


def prepare(sc: SparkContext, plan: DataPlan, group: str, files: Files | None) -> Feed:
    """As `feed.prepare`, through Spark only where the ranks cannot read the files, which a notice says then."""
    if files is None:
        return feed.prepare(sc, plan, group)
    problem = _problem(plan, files)
    if problem is None:
        prepared = _feed(sc, plan, files, group)
        if isinstance(prepared, Feed):
            return prepared
        problem = prepared
    through_spark = feed.prepare(sc, plan, group)
    through_spark.notices.append("--data %s: its rows go through Spark, as %s" % (plan.name, problem))
    return through_spark


def _problem(plan: DataPlan, files: Files) -> str | None:
    """Why the rows go through Spark, as far as that needs no look at a file."""
    if plan.sequences is not None:
        return "--sequence-length needs them in order"
    if any(column.get("sparse") for column in plan.columns):
        return "--sparse needs vectors of Spark"
    if plan.validation_rows is not None:
        return "--validation names a DataFrame"
    if files.conditions is None:
        return "--where is more than comparisons that `and` joins, or not of Parquet files"
    if plan.size > MOST_RANKS:
        return "each worker would read all files, and there are more than %d" % MOST_RANKS
    if not 0 < len(files.uris) <= MOST_FILES:
        return "there are %d files" % len(files.uris)
    names = [column["name"] for column in plan.columns] + conditions.names(files.conditions)
    folder = _of_folders(files.uris, names)
    return None if folder is None else "folders are named after column %r" % folder


def _of_folders(uris: Sequence[str], names: Sequence[str]) -> str | None:
    """A column that folders are named after, as in year=2012/: Spark takes it from there, whatever the files have."""
    folder_names = {folder_name for uri in uris for folder_name in uri.split("/")[:-1] if "=" in folder_name}
    folders = {urllib.parse.unquote(folder_name).partition("=")[0].lower() for folder_name in folder_names}
    return next((name for name in names if name.lower() in folders), None)


def _feed(sc: SparkContext, plan: DataPlan, files: Files, group: str) -> Feed | str:
    """Or why the ranks cannot read the files."""
    assert files.conditions is not None
    columns = [_of_one_length(column) for column in plan.columns]
    indexed_files: list[FileRows] = []
    shapes: list[tuple[int, list[list[int]]]] = []
    text_bytes = [0] * len(plan.columns)
    for file_index in _indexes(sc, plan, files, group):
        if "problem" in file_index:
            return str(file_index["problem"])
        indexed_files += file_index["files"]
        shapes += [file_index["shapes"]] if file_index["shapes"] else []
        text_bytes = [a + b for a, b in zip(text_bytes, file_index["text_bytes"])]
    for index, column in enumerate(plan.columns):
        if "ragged" in column and len({tuple(shapes_of_columns[index]) for _, shapes_of_columns in shapes}) > 1:
            return "column %r has lists of several lengths" % column["name"]
    report = _report(
        plan, sum(sum(file["rows"]) for file in indexed_files), min(shapes)[1] if shapes else None, text_bytes
    )
    rows = feed.Rows("train", plan.name, [(0, 0, report)] if report["rows"] else [])
    is_whole = plan.whole_bytes > 0 and feed.each_gets_all(feed.manifest_of([rows], [], plan.of_size(1)), plan)
    if is_whole:
        plan = plan.of_size(1)
    manifest = feed.manifest_of([rows], [], plan)
    order = feed.order_of(rows, None, manifest["tensors"], plan, range(plan.size))
    manifest["files"] = {
        "format": files.format,
        "files": sorted(indexed_files, key=lambda file: file["number"]),
        "columns": columns,
        "tensors": plan.arrangement["tensors"],
        "conditions": files.conditions,
        "order": {**order, "starts": {}, "checksums": {}},
    }
    inputs = roles.inputs(plan.columns, plan.arrangement, manifest["tensors"])
    record: FeedRecord = {
        "manifest": manifest,
        "inputs": inputs,
        "notices": plan.notices,
        "losses": packing.merged([]),  # the ranks say what they find
    }
    return Feed(sc.parallelize(range(plan.size), plan.size), record, is_whole=is_whole)


def _of_one_length(column: Column) -> Column:
    """As the ranks read a column of lists that is not ragged."""
    one_length: Column = {**column}
    one_length.pop("ragged", None)
    return one_length


def _indexes(sc: SparkContext, plan: DataPlan, files: Files, group: str) -> list[dict[str, Any]]:
    """What the executors find in the files: of each task, as `parquet.index` returns it."""
    module, arguments = (parquet, [files.conditions]) if files.format == "parquet" else (tfrecord, [])
    make_index = by_value.functions_of(module)["index"]
    access = by_value.functions_of(file_systems)
    reach = access["located" if files.format == "parquet" else "content"]
    numbered, columns = list(enumerate(files.uris)), plan.columns
    tasks = max(1, slots.total(sc))  # so many that every executor has one
    shares = [numbered[task::tasks] for task in range(tasks)]
    problem, first_uri, seconds = access["problem"], files.uris[0], FIND_SECONDS

    def task(share: Any) -> Any:
        reason = problem(first_uri, seconds)
        return make_index(share, columns, *arguments, reach) if reason is None else {"problem": reason}

    try:
        return list(jvm_gateway.collect(sc.parallelize(shares, tasks).map(task), group, "index of %s" % plan.name))
    except Exception as error:  # pyspark turns some of Java's exceptions into its own, and others not
        raise DataError("%s cannot be read: %s" % (plan.name, spark_error.cause(error))) from error


def _report(plan: DataPlan, rows: int, shapes: list[list[int]] | None, text_bytes: Sequence[int]) -> PackReport:
    """What packing would report of all rows, as far as the index knows it."""
    tensors = plan.arrangement["tensors"]
    dtypes = ["O" if column["dtype"] == "S" else column["dtype"] for column in plan.columns]
    return {
        **packing.EMPTY_REPORT,
        "rows": rows,
        "shapes": []
        if shapes is None
        else [[len(indices)] if len(indices) > 1 else shapes[indices[0]] for indices in tensors],
        "dtypes": [np.result_type(*(np.dtype(dtypes[index]) for index in indices)).str for indices in tensors],
        "text_bytes": [sum(text_bytes[index] for index in indices) for indices in tensors],
    }
