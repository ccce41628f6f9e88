"""--data on the driver: a DataFrame becomes each rank's share of its rows, every row in exactly one.

The rows are packed into numpy blobs on the executors, counted in one action, and dealt round robin: row i goes to rank
i % n, so that shares differ by at most one row and the number of steps is known before the first. Neither pyarrow nor
pandas is needed. `feed_share` is the ranks' side.
"""

import importlib.util

import numpy as np

from . import feed_pack, own_context, spark_error
from .feed_columns import FeedError, is_spark, nearest_frame, pandas_values
from .feed_plan import Plan
from .feed_share import datasets, store

__all__ = ["Feed", "FeedError", "check", "datasets", "nearest_frame", "prepare", "store"]

#: Blobs of a pandas DataFrame are spread over so many partitions a worker.
PANDAS_SLICES_PER_WORKER = 4


class Feed:
    """Data that is ready for the ranks.

    manifest: JSON-able, for `feed_share.datasets` on every rank. rdd: n partitions, partition k yields rank k's blobs
    (`feed_share.store` takes them); it may be read again, for a later attempt. notices: hints, a line each.
    """

    def __init__(self, rdd, manifest, notices, persisted):
        self.rdd = rdd
        self.manifest = manifest
        self.notices = notices
        self._persisted = persisted

    def close(self):
        """Give back what Spark keeps for this feed."""
        for rdd in self._persisted:
            rdd.unpersist()


def check(value, spec, namespace):
    """Validate what can be without a Spark job; returns the `Plan`. Raises `FeedError`, one line.

    value: the DataFrame, or its name; spec: "data", "features", "label", "validation", "workers", "strategy" and "seed"
    of the RunSpec; namespace: the session's globals, where a DataFrame for validation is found.
    """
    return Plan(value, spec, namespace)


def prepare(sc, plan, group):
    """Make the `Feed` of a run, in one pass over the data. Raises `FeedError`, one line.

    sc: as `own_context.of` gives it; plan: what `check` returned; group: the job group of the pass.
    """
    shipped = _by_value(feed_pack)
    sets = [_pack(sc, group, shipped, "train", plan.name, plan.rows, plan)]
    try:
        if plan.validation_rows is not None:
            sets.append(_pack(sc, group, shipped, "validation", plan.validation_name, plan.validation_rows, plan))
        return _deal(sc, shipped, sets, plan)
    except BaseException:
        for packed in sets:
            packed.rdd.unpersist()
        raise


class _Packed:
    """One DataFrame as packed blobs: an RDD of (partition, chunk, report, blob), and what the reports add up to."""

    def __init__(self, kind, name, rdd, reports):
        self.kind, self.rdd = kind, rdd
        for _, _, report in reports:
            if report["error"]:
                raise FeedError("%s, %s" % (name, report["error"]))
        if not reports:
            raise FeedError("%s has no rows" % name)
        self.counts, self.starts, self.rows = {}, {}, 0
        for partition, chunk, report in sorted(reports, key=lambda entry: entry[:2]):
            assert chunk == len(self.counts.setdefault(partition, []))
            self.counts[partition].append(report["rows"])
            self.starts.setdefault(partition, []).append(self.rows)
            self.rows += report["rows"]
        self.shapes = [sorted(set(map(tuple, shapes))) for shapes in zip(*(r["shapes"] for _, _, r in reports))]
        self.dtypes = [set(dtypes) for dtypes in zip(*(r["dtypes"] for _, _, r in reports))]
        self.nan = sorted({name for _, _, report in reports for name in report["nan"]})


def _pack(sc, group, shipped, kind, name, frame, plan):
    columns, tensors, pack = plan.columns, plan.arrangement["tensors"], shipped["pack"]
    if is_spark(frame):
        from pyspark import StorageLevel

        rows = own_context.rdd_of(frame, sc, group)
        rdd = rows.mapPartitionsWithIndex(lambda index, rows: pack(index, rows, columns, tensors))
        rdd.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return _Packed(kind, name, rdd, _reports(name, rdd, group))
        except BaseException:
            rdd.unpersist()
            raise
    records = list(_pack_pandas(frame, plan))
    slices = max(1, min(len(records), PANDAS_SLICES_PER_WORKER * plan.size))
    return _Packed(kind, name, sc.parallelize(records, slices), [record[:3] for record in records])


def _reports(name, rdd, group):
    try:
        return own_context.collect(rdd.map(lambda record: record[:3]), group, "rows of %s" % name)
    except Exception as error:  # pyspark turns some of Java's exceptions into its own, and others not
        raise FeedError("%s cannot be computed: %s" % (name, spark_error.cause(error))) from error


def _pack_pandas(frame, plan):
    """As `feed_pack.pack`, for a pandas DataFrame, which counts as one partition."""

    def pack(rows):
        values = [pandas_values(rows, column["name"]) for column in plan.columns]
        return feed_pack.pack_columns(values, plan.columns, plan.arrangement["tensors"])

    at_once = feed_pack.rows_at_once(pack(frame.iloc[:1])[1]) if len(frame) else 1
    for chunk, start in enumerate(range(0, len(frame), at_once)):
        report, blob = pack(frame.iloc[start : start + at_once])
        yield 0, chunk, report, blob


def _deal(sc, shipped, sets, plan):
    train = sets[0]
    rows, held = train.rows, feed_pack.held(train.rows, plan.fraction)
    validation_rows = sets[1].rows if len(sets) > 1 else held
    if plan.fraction and not 0 < held < rows:
        raise FeedError("--validation %g of the %d rows of %s leaves one part empty" % (plan.fraction, rows, plan.name))
    if rows - held < plan.size:
        raise FeedError(
            "%s has %d rows to train on, too few for %d workers: use --workers %d"
            % (plan.name, rows - held, plan.size, rows - held)
        )
    tensors = [_tensor(number, sets, plan) for number in range(len(plan.arrangement["tensors"]))]
    dealt = []
    for packed in sets:
        order = {
            "set": packed.kind,
            "size": plan.size,
            "seed": plan.seed,
            "fraction": plan.fraction,
            "rows": packed.rows,
            "starts": packed.starts,
            "counts": packed.counts,
            "dtypes": [tensor["dtype"] for tensor in tensors],
            "whole": plan.whole,
        }
        dealt.append(packed.rdd.mapPartitions(_dealer(shipped["deal"], order)))
    rdd = sc.union(dealt) if len(dealt) > 1 else dealt[0]
    manifest = {
        "data": plan.name,
        "size": plan.size,
        "rows": rows - held,
        "validation_rows": validation_rows,
        "validation_whole": plan.whole,
        "tensors": tensors,
        "features": plan.arrangement["features"],
        "label": plan.arrangement["label"],
    }
    nan = sorted({name for packed in sets for name in packed.nan})
    notices = ["--data %s: column %r holds NaN" % (plan.name, name) for name in nan]
    return Feed(
        rdd.partitionBy(plan.size, shipped["identity"]).values(), manifest, notices, [packed.rdd for packed in sets]
    )


def _dealer(deal, order):
    return lambda records: deal(records, order)


def _tensor(number, sets, plan):
    """A tensor's {"name", "shape", "dtype" as stored, "use"}; FeedError where the rows do not agree on the shape.

    "use" is the dtype in the dataset: "floatx" as Keras has it then, "string", or a numpy dtype.
    """
    positions = plan.arrangement["tensors"][number]
    matrix, name = len(positions) > 1, plan.columns[positions[0]]["name"]
    shapes = sorted({shape for packed in sets for shape in packed.shapes[number]})
    if len(shapes) > 1:
        one, other = ("x".join(map(str, shape)) for shape in shapes[:2])
        raise FeedError(
            "%s, column %r: its lengths differ (%s and %s): pad or cut them to one length"
            % (plan.name, name, one, other)
        )
    dtypes = [np.dtype(dtype) for packed in sets for dtype in packed.dtypes[number]]
    dtype = np.result_type(*dtypes)  # of texts, the widest
    if dtype.kind == "S":
        use = "string"
    elif dtype.kind == "f" or matrix:
        use = "floatx"
    else:
        use = "int64" if number == plan.arrangement["label"] else dtype.name
    return {"name": "features" if matrix else name, "shape": list(shapes[0]), "dtype": dtype.str, "use": use}


def _by_value(module):
    """The functions of a self-contained module such that Spark pickles them whole, and not as a module to be imported.

    Its source is executed under a name that is no module: the executors' Python has never heard of this package.
    """
    specification = importlib.util.find_spec(module.__name__)
    source = specification.loader.get_source(module.__name__)
    functions = {"__name__": "_ddl_by_value"}
    exec(compile(source, module.__name__.rsplit(".", 1)[-1] + ".py", "exec"), functions)
    return functions
