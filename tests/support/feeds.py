"""--data in one process: a stand-in for the few operations of an RDD, and the ranks' datasets of what it made."""

import json

from ddl_magics.runtime.cell import execution
from ddl_magics.runtime.data import feed, rank_data, share_files
from ddl_magics.runtime.data.columns import DataError
from ddl_magics.runtime.data.plan import DataPlan
from ddl_magics.runtime.run_spec import RunSpec
from support import refusals

#: A cell that reports all of its rows, and how they are read there.
LOGGED = """
for a in [float(a) for batch, labels in dataset for a in batch]:
    ddl.log(row=a)
"""


class LocalRdd:
    """What the feed uses of an RDD, in this process."""

    def __init__(self, partitions):
        self.partitions = partitions

    def mapPartitions(self, function):
        return LocalRdd([list(function(iter(partition))) for partition in self.partitions])

    def partitionBy(self, size, partitioner):
        buckets = [[] for _ in range(size)]
        for partition in self.partitions:
            for key, value in reversed(partition):  # a shuffle promises no order
                buckets[partitioner(key)].append((key, value))
        return LocalRdd(buckets)

    def values(self):
        return LocalRdd([[value for _, value in partition] for partition in self.partitions])

    def glom(self):
        return self

    def collect(self):
        return self.partitions

    def unpersist(self):
        pass


class LocalSpark:
    """Stands in for a session whose data is a pandas DataFrame."""

    @property
    def sparkContext(self):
        return self

    def parallelize(self, records, slices):
        return LocalRdd([records[k::slices] for k in range(slices)])

    def union(self, rdds):
        return LocalRdd([partition for rdd in rdds for partition in rdd.partitions])


def prepare(sc, *arguments):
    return feed.prepare(sc, DataPlan(*arguments), "test")


def refusal(sc, frame, options, namespace=None):
    """The line with which --data is refused."""
    return refusals.one_line(DataError, prepare, sc, frame, options, namespace or {})


def spec(**changes):
    return RunSpec.from_record({"data": "df", "label": "y", "seed": 7, **changes})


def shares(spark, frame, folder, namespace=None, **changes):
    """Prepare a feed and store each rank's blobs; returns (manifest as it travels, folders by rank, feed)."""
    options = spec(**changes)
    made = prepare(spark.sparkContext, frame, options, dict(namespace or {}, df=frame))
    blobs = made.rdd.glom().collect()
    manifest = json.loads(json.dumps(made.manifest))
    folders = []
    for rank, mine in enumerate(blobs):
        folders.append(str(folder / str(rank)))
        share_files.store(mine, folders[-1], manifest, rank)
    return manifest, folders, made


def open_rank(manifest, folders, rank, batch_size, strategy="allreduce", seed=7):
    return rank_data.datasets(folders[rank], manifest, rank, len(folders), batch_size, seed, strategy == "allreduce")


def learned(cell, manifest, folders, batch_size, seed):
    """The value of a cell that trains in this process, with the rows of a run of one worker."""
    import keras

    dataset, validation = open_rank(manifest, folders, 0, batch_size, seed=seed)
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    try:
        return execution.execute(cell, {"dataset": dataset, "validation": validation})
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)


def flip_bit(path, at):
    """Damage a file in one byte."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def batches(dataset):
    return list(dataset.as_numpy_iterator())
