"""--data on the driver: a DataFrame becomes each rank's share of its rows, with every row in exactly one share.

Spark's executors pack the rows into numpy blobs, one action counts them, and they are dealt round robin: the row at
place i of the mixed order goes to rank i % n, so that shares differ by at most one row and the number of steps is known
before the first one. Neither pyarrow nor pandas is needed. share_files.py and rank_data.py are the ranks' side.
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

import numpy as np

from ..spark import jvm_gateway, located, slots, spark_error
from ..wording import in_bytes
from . import arrow, by_value, cache_lookup, packing, rank_data, records, roles, sequences, share_files, sorting
from .columns import DataError, is_spark, pandas_columns, pandas_values
from .sequences import Layout

if TYPE_CHECKING:
    from ..spark.pyspark_types import Rdd, SparkContext
    from .cache_lookup import CacheContents, Generation
    from .packing import Record
    from .plan import DataPlan
    from .records import (
        CacheUse,
        DataFrame,
        DealOrder,
        FeedRecord,
        FloatLosses,
        Manifest,
        PackReport,
        SeriesColumns,
        SetName,
        TensorLayout,
    )

#: More partitions of a Spark DataFrame are joined: each costs two Python tasks, of 0.1 s of CPU time without any row.
PARTITIONS_PER_SLOT = 4
#: Numbers of a vector from which on its zeros are worth a line.
LONG_VECTOR = 1000
#: Partitions for the blobs of a pandas DataFrame, per worker.
PANDAS_SLICES_PER_WORKER = 4


class Feed:
    """Data that is ready for the ranks.

    Attributes:
        rdd: of n partitions, or one if `is_whole`; partition k yields the blobs of rank k, for `share_files.store`, and
            may be read again by a later attempt. If `cache` is set, the partitions of ranks that are not `dealt` are
            empty.
        manifest: JSON-able, for `rank_data.datasets` on every rank.
        inputs: how other rows become the same tensors.
        notices: hints for the user, a line each.
        losses: what Keras' floatx may lose of the columns.
        is_whole: whether the only partition of `rdd` has all rows, for each rank, however many there are.
    """

    def __init__(
        self,
        rdd: Rdd,
        record: FeedRecord,
        cache: CacheUse | None = None,
        persisted: Sequence[Rdd] = (),
        prepare_all: Callable[[], Feed] | None = None,
        is_whole: bool = False,
    ) -> None:
        """prepare_all: makes a feed with the rows of all ranks; None if this one has them."""
        self.rdd = rdd
        self.manifest, self.inputs, self.notices = record["manifest"], record["inputs"], list(record["notices"])
        self.losses: FloatLosses = record.get("losses", packing.merged([]))
        self.cache, self.is_whole = cache, is_whole
        self._persisted = persisted
        self._prepare_all = prepare_all

    def with_all_ranks(self) -> Feed:
        """The feed with the rows of all ranks, for a cache that has lost some of them. Close it, too."""
        return self if self._prepare_all is None else self._prepare_all()

    def close(self) -> None:
        """Release what Spark keeps for this feed."""
        for rdd in self._persisted:
            rdd.unpersist()


def prepare(sc: SparkContext, plan: DataPlan, group: str) -> Feed:
    """Makes the `Feed` of a run, in one pass over the data, or without one from the cache.

    Args:
        sc: from `jvm_gateway.separate_context`.
        group: the job group of the pass.

    Raises:
        DataError: one line.
    """
    cache, notices = cache_lookup.look(sc, plan, group)
    generation = None if cache is None else cache.complete(plan.size)
    if cache is None or generation is None or each_gets_all(generation.feed["manifest"], plan):
        feed = _pass(sc, plan, group, cache)
    else:
        feed = _from_cache(sc, plan, cache, generation, lambda: _pass(sc, plan, group, cache, all_ranks=True))
    feed.notices += notices
    return feed


def _from_cache(
    sc: SparkContext, plan: DataPlan, cache: CacheContents, generation: Generation, prepare_all: Callable[[], Feed]
) -> Feed:
    rdd = located.partitions(sc, [generation.hosts[rank] for rank in range(plan.size)])
    use = cache.use(plan.name, generation.digest, generation.feed, dealt=())
    record = generation.feed
    record["manifest"]["data"] = plan.name
    feed = Feed(rdd, record, use, prepare_all=prepare_all)
    created = cache_lookup.time_text(generation.created)
    feed.notices.append("--data %s: from the cache, made %s; %%ddl cache lists and clears it" % (plan.name, created))
    return feed


def _pass(sc: SparkContext, plan: DataPlan, group: str, cache: CacheContents | None, all_ranks: bool = False) -> Feed:
    """A pass over the data. all_ranks: deal to all, not only to those whose share the cache may not have."""
    shipped = by_value.functions_of(packing)
    sets = [_pack(sc, group, shipped, "train", plan.name, plan.rows, plan)]
    try:
        if plan.validation_rows is not None:
            sets.append(_pack(sc, group, shipped, "validation", plan.validation_name, plan.validation_rows, plan))
        if plan.whole_bytes:
            feed = _deal(sc, shipped, sets, plan.of_size(1))
            if each_gets_all(feed.manifest, plan):
                feed.is_whole = True
                return feed
        if cache is None:
            return _deal(sc, shipped, sets, plan)
        if not cache.still_holds(plan):
            feed = _deal(sc, shipped, sets, plan)
            feed.notices.append("--data %s is not kept for later runs: its files changed meanwhile" % plan.name)
            return feed
        digest = _digest(sets)
        cached_ranks = set() if all_ranks else set(cache.everywhere(digest))
        ranks = [rank for rank in range(plan.size) if rank not in cached_ranks]
        prepare_all = None if len(ranks) == plan.size else lambda: _pass(sc, plan, group, cache, all_ranks=True)
        feed = _deal(sc, shipped, sets, plan, ranks, prepare_all)
        record: FeedRecord = {
            "manifest": feed.manifest,
            "inputs": feed.inputs,
            "notices": list(feed.notices),
            "losses": feed.losses,
        }
        feed.cache = cache.use(plan.name, digest, record, ranks)
        if cached_ranks:
            notice = "--data %s: %d of %d shares from the cache, made %s; the others are dealt"
            words = plan.name, len(cached_ranks), plan.size, cache_lookup.time_text(cache.generations[digest].created)
            feed.notices.append(notice % words)
        return feed
    except BaseException:
        for packed in sets:
            packed.rdd.unpersist()
        raise


def each_gets_all(manifest: Manifest, plan: DataPlan) -> bool:
    """Whether each rank is to have all rows of this manifest, of any number of ranks."""
    stored = [
        share_files.stored_rows(manifest, name, rank) for name in share_files.SETS for rank in range(manifest["size"])
    ]
    return sum(stored) * rank_data.row_bytes(manifest) <= plan.whole_bytes


class Rows:
    """The rows of a set, as the sums of reports about parts of them. Raises `DataError`, one line.

    reports: (partition, chunk number, report) of each part. rdd: of `packing.Record`s, where the rows are packed.
    """

    def __init__(
        self, kind: SetName, name: str, reports: Sequence[tuple[int, int, PackReport]], rdd: Rdd = None
    ) -> None:
        self.kind, self.name, self.rdd = kind, name, rdd
        for _, _, report in reports:
            if report["error"]:
                raise DataError("%s, %s" % (name, report["error"]))
        if not reports:
            raise DataError("%s has no rows" % name)
        self.rows = 0
        self.checksums: dict[int, list[int]] = {}
        self.starts: dict[int, list[int]] = {}
        for partition, chunk, report in sorted(reports, key=lambda entry: entry[:2]):
            assert chunk == len(self.checksums.setdefault(partition, []))
            self.checksums[partition].append(report["checksum"])
            self.starts.setdefault(partition, []).append(self.rows)
            self.rows += report["rows"]
        self.shapes = [sorted(set(map(tuple, shapes))) for shapes in zip(*(r["shapes"] for _, _, r in reports))]
        self.dtypes = [set(dtypes) for dtypes in zip(*(r["dtypes"] for _, _, r in reports))]
        self.text_bytes = [sum(counts) for counts in zip(*(r["text_bytes"] for _, _, r in reports))]
        self.nan = {name for _, _, report in reports for name in report["nan"]}
        self.inf = {name for _, _, report in reports for name in report["inf"]}
        self.losses = packing.merged([report for _, _, report in reports])
        self.series = [report["series"] for _, _, report in sorted(reports, key=lambda entry: entry[:2])]


def _pack(
    sc: SparkContext,
    group: str,
    shipped: Mapping[str, Any],
    kind: SetName,
    name: str,
    frame: DataFrame,
    plan: DataPlan,
) -> Rows:
    if not is_spark(frame):
        records = list(_pack_pandas(frame, plan))
        slices = max(1, min(len(records), PANDAS_SLICES_PER_WORKER * plan.size))
        return Rows(kind, name, [record[:3] for record in records], sc.parallelize(records, slices))
    columns, tensors = plan.columns, plan.arrangement["tensors"]
    series: SeriesColumns | None = None
    if plan.sequences is not None:
        series = {"groups": len(plan.sequences.group_by), "order_by": plan.sequences.order_by}
    # Partitions are joined where they need no order: those that are joined may be no neighbours.
    max_partitions = PARTITIONS_PER_SLOT * max(plan.size, slots.total(sc)) if series is None else None
    if arrow.takes(frame, columns) and arrow.is_everywhere(sc, group):
        joined = frame if max_partitions is None else frame.coalesce(max_partitions)
        try:
            rdd = arrow.packed(sc, group, shipped["pack_batches"], joined, columns, tensors, series)
            return _persisted_rows(kind, name, rdd, group)
        except Exception as error:
            if "arrow" not in str(error).lower():  # rows work for types that Arrow does not take
                raise
    pack, rows = shipped["pack"], jvm_gateway.dataframe_rdd(frame, sc, group)
    if max_partitions is not None and rows.getNumPartitions() > max_partitions:
        rows = rows.coalesce(max_partitions)
    rdd = rows.mapPartitionsWithIndex(lambda index, rows: pack(index, rows, columns, tensors, series))
    return _persisted_rows(kind, name, rdd, group)


def _persisted_rows(kind: SetName, name: str, rdd: Rdd, group: str) -> Rows:
    """Records that Spark computes once. The name of the RDD is its job group, by which `data_progress` finds it."""
    from pyspark import StorageLevel

    rdd.setName(group).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return Rows(kind, name, _reports(name, rdd, group), rdd)
    except BaseException:
        rdd.unpersist()
        raise


def _reports(name: str, rdd: Rdd, group: str) -> list[tuple[int, int, PackReport]]:
    try:
        return list(jvm_gateway.collect(rdd.map(lambda record: record[:3]), group, "rows of %s" % name))
    except Exception as error:  # pyspark turns some of Java's exceptions into its own, and others not
        raise DataError("%s cannot be computed: %s" % (name, spark_error.cause(error))) from error


def _pack_pandas(frame: DataFrame, plan: DataPlan) -> Iterator[Record]:
    """As `packing.pack`, for a pandas DataFrame, which counts as one partition."""
    columns = list(pandas_columns(frame, [column["name"] for column in plan.columns]))

    def pack(rows: slice) -> tuple[PackReport, bytes]:
        values = [pandas_values(column.iloc[rows]) for column in columns]
        report, blob = packing.packed(packing.column_arrays, values, plan.columns, plan.arrangement["tensors"])
        if plan.sequences is not None and not report["error"]:
            packing.add_series(report, sorting.pandas_keys(frame.iloc[rows], plan.sequences), plan.sequences.order_by)
        return report, blob

    block_rows = packing.rows_per_blob(pack(slice(1))[1]) if len(frame) else 1
    for chunk, start in enumerate(range(0, len(frame), block_rows)):
        report, blob = pack(slice(start, start + block_rows))
        yield 0, chunk, report, blob


def _digest(sets: Sequence[Rows]) -> str:
    """What tells the packed rows, in their order, from others."""
    rows = [[packed.rows, sorted(packed.checksums.items())] for packed in sets]
    return hashlib.sha256(json.dumps(rows).encode("utf-8")).hexdigest()[:16]


def _deal(
    sc: SparkContext,
    shipped: Mapping[str, Any],
    sets: Sequence[Rows],
    plan: DataPlan,
    ranks: Sequence[int] | None = None,
    prepare_all: Callable[[], Feed] | None = None,
) -> Feed:
    """ranks: those to deal to; all without it."""
    ranks = range(plan.size) if ranks is None else ranks
    layouts = _layouts(sets, plan)
    manifest = manifest_of(sets, layouts, plan)
    tensors = manifest["tensors"]
    orders = [
        order_of(packed, layouts[index] if layouts else None, tensors, plan, ranks) for index, packed in enumerate(sets)
    ]
    dealt = [
        packed.rdd.mapPartitions(functools.partial(shipped["deal"], order=order)) for packed, order in zip(sets, orders)
    ]
    window_layouts = [layout for set_layouts in layouts for layout in set_layouts]
    if window_layouts:
        runs = [blob for layout in window_layouts if layout.total for blob in layout.run_blobs()]
        dealt.append(sc.parallelize([(rank, blob) for rank, blob in runs if rank in ranks], 1))
    rdd = sc.union(dealt) if len(dealt) > 1 else dealt[0]
    columns_by_problem = [("NaN", packed.nan) for packed in sets] + [("infinite values", packed.inf) for packed in sets]
    holding = sorted({(name, contents) for contents, names in columns_by_problem for name in names})
    notices = plan.notices + [packing.holding(plan.name, name, contents) for name, contents in holding]
    notices += _about_vectors(plan, tensors)
    notices += [_about_ragged(plan.name, tensor["name"]) for tensor in tensors if records.is_ragged(tensor["use"])]
    inputs = roles.inputs(plan.columns, plan.arrangement, tensors)
    dealt_rdd = rdd.partitionBy(plan.size, shipped["identity"]).values()
    losses = packing.merged([packed.losses for packed in sets])
    record: FeedRecord = {"manifest": manifest, "inputs": inputs, "notices": notices, "losses": losses}
    return Feed(dealt_rdd, record, persisted=[packed.rdd for packed in sets], prepare_all=prepare_all)


def manifest_of(sets: Sequence[Rows], layouts: Sequence[Sequence[Layout]], plan: DataPlan) -> Manifest:
    """The manifest for all ranks. Raises `DataError` for too few rows, and for rows of different shapes."""
    rows, validation_rows = _counts(sets, layouts, plan)
    window_layouts = [layout for set_layouts in layouts for layout in set_layouts]
    return {
        "data": plan.name,
        "size": plan.size,
        "rows": rows,
        "validation_rows": validation_rows,
        "validation_whole": plan.replicates_validation,
        "floatx": None,
        "tensors": [_tensor(index, sets, plan) for index in range(len(plan.arrangement["tensors"]))],
        "features": plan.arrangement["features"],
        "label": plan.arrangement["label"],
        "weight": plan.arrangement["weight"],
        "sequences": sequences.described(plan.sequences, window_layouts) if plan.sequences is not None else None,
        "files": None,
    }


def _about_vectors(plan: DataPlan, tensors: Sequence[TensorLayout]) -> Iterator[str]:
    """What the zeros of long vectors cost, a line for each column."""
    for indices, tensor in zip(plan.arrangement["tensors"], tensors):
        column = plan.columns[indices[0]]
        words = plan.name, column["name"], in_bytes(4 * int(np.prod(tensor["shape"])))
        if column.get("sparse"):
            yield "--data %s: column %r stays sparse; where the model needs it dense, a row takes %s" % words
        elif column["vector"] and tensor["shape"][0] >= LONG_VECTOR:
            hint = "if most of it is zero, --sparse %s stores and sends the rest alone" % column["name"]
            yield "--data %s: a vector of column %r takes %s; %s" % (*words, hint)


def _about_ragged(name: str, column: str) -> str:
    hint = "dense in `dataset.map`, they are as long as the longest row of the worker's part of a batch"
    words = name, column, hint, column
    return "--data %s: column %r has lists of several lengths, and is a ragged tensor; %s: --pad %s=LENGTH" % words


def _counts(sets: Sequence[Rows], layouts: Sequence[Sequence[Layout]], plan: DataPlan) -> tuple[int, int]:
    """(elements for training, for validation), of all ranks together. Raises `DataError` where they are too few."""
    if plan.sequences is not None:
        totals = {layout.name: layout.total for set_layouts in layouts for layout in set_layouts}
        train, held_out, unit = totals["train"], totals.get("validation", 0), "windows"
        total = train + held_out
        empty = [
            packed.name for packed, set_layouts in zip(sets, layouts) if not sum(layout.total for layout in set_layouts)
        ]
        if empty:
            raise DataError(
                "%s has no series of the %d rows that a window spans, with that of its label: lower --sequence-length"
                % (empty[0], plan.sequences.span)
            )
    else:
        total = sets[0].rows
        held_out, unit = packing.held_out_count(total, plan.fraction), "rows"
        train = total - held_out
        if plan.validation_rows is not None:
            held_out = sets[1].rows
    since = None if plan.sequences is None else plan.sequences.since
    if (plan.fraction or since or plan.validation_rows is not None) and not (train and held_out):
        held_out_part = since or plan.validation_name or "%g" % plan.fraction
        raise DataError(
            "--validation %s of the %d %s of %s leaves one part empty" % (held_out_part, total, unit, plan.name)
        )
    if not train:
        raise DataError("%s has no %s to train on" % (plan.name, unit))
    if train < plan.size:
        few = "%s has %d %s to train on, too few for %d workers: use --workers %d"
        unit = unit if train > 1 else unit[:-1]
        raise DataError(few % (plan.name, train, unit, plan.size, train))
    return train, held_out


def _layouts(sets: Sequence[Rows], plan: DataPlan) -> list[list[Layout]]:
    """Of each set, where its windows for training and for validation go; empty without --sequence-length."""
    if plan.sequences is None:
        return []
    layouts: list[list[Layout]] = []
    for packed in sets:
        train_and_validation = plan.sequences.windows(plan.sequences.series(packed.name, packed.series), plan.fraction)
        # A set that is one of two has all of its windows among the first, as none are held out.
        names: list[SetName] = ["train", "validation"] if len(sets) == 1 else [packed.kind]
        layouts.append(
            [
                Layout(name, windows, plan.sequences, plan.size, plan.replicates_validation and name == "validation")
                for name, windows in zip(names, train_and_validation)
            ]
        )
    return layouts


def order_of(
    packed: Rows,
    layouts: Sequence[Layout] | None,
    tensors: Sequence[TensorLayout],
    plan: DataPlan,
    ranks: Sequence[int],
) -> DealOrder:
    return {
        "set": packed.kind,
        "size": plan.size,
        "seed": plan.seed,
        "fraction": plan.fraction,
        "rows": packed.rows,
        "starts": packed.starts,
        "checksums": packed.checksums,
        "ranks": list(ranks),
        "dtypes": [tensor["dtype"] for tensor in tensors],
        "ragged": [records.is_ragged(tensor["use"]) for tensor in tensors],
        "replicated": plan.replicates_validation,
        "stretches": None if layouts is None else {layout.name: layout.stretches for layout in layouts},
    }


def _tensor(index: int, sets: Sequence[Rows], plan: DataPlan) -> TensorLayout:
    """Tensor `index` of the arrangement. Raises `DataError` where its rows do not all have one shape."""
    columns = plan.arrangement["tensors"][index]
    matrix, name = len(columns) > 1, plan.columns[columns[0]]["name"]
    shapes = sorted({shape for packed in sets for shape in packed.shapes[index]})
    is_ragged = "ragged" in plan.columns[columns[0]] and shapes != [(0,)] and (len(shapes) > 1 or shapes == [()])
    if shapes == [(0,)]:
        raise DataError("%s, column %r: its arrays are empty: leave it out of --features" % (plan.name, name))
    if len(shapes) > 1 and not is_ragged:
        shape, other_shape = ("x".join(map(str, shape)) for shape in shapes[:2])
        raise DataError(
            "%s, column %r: its lengths differ (%s and %s): pad or cut them to one length%s"
            % (plan.name, name, shape, other_shape, packing.pad_hint(plan.columns[columns[0]]))
        )
    dtypes = [np.dtype(dtype) for packed in sets for dtype in packed.dtypes[index]]
    dtype = np.result_type(*dtypes).newbyteorder("=")
    use = roles.used_as(dtype, matrix or index == plan.arrangement["weight"])
    if plan.columns[columns[0]].get("sparse"):
        use = "sparse"
    if is_ragged:
        use = records.RAGGED + use
    if use == dtype.name and index in roles.indices(plan.arrangement["label"]):
        use = "int64"
    text_bytes = 0
    if is_ragged or use in ("string", "sparse"):
        text_bytes = -(-sum(packed.text_bytes[index] for packed in sets) // sum(packed.rows for packed in sets))
    name = "features" if matrix else name
    return {
        "name": name,
        "shape": [] if is_ragged else list(shapes[0]),
        "dtype": dtype.str,
        "use": use,
        "text_bytes": text_bytes,
    }
