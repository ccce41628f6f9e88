"""--data on a rank: its share of the rows, in memory-mapped files, as `dataset` and `validation`.

`store` runs in the rank's Spark task and writes the blobs that `feed` has dealt to it; `datasets` runs in the rank's
own process and reads them as tf.data.
"""

import itertools
import os

import numpy as np

from . import feed_pack

#: The batch of a worker where the user gives none.
BATCH_ROWS_PER_WORKER = 32
#: Batches that are gathered ahead of the training.
PREFETCH_BATCHES = 4

TRAIN, VALIDATION = "train", "validation"


def _path(folder, name, number):
    return os.path.join(folder, "%s-%d.npy" % (name, number))


def store(blobs, folder):
    """Write a rank's `blobs`, in whatever order they come, to .npy files in `folder`; returns {set: rows}.

    RuntimeError where rows of the share are missing or came twice.
    """
    os.makedirs(folder, exist_ok=True)
    files, stored, shares = {}, {}, {}
    for blob in blobs:
        header, arrays = feed_pack.decode(blob)
        name, start, share = header["set"], header["start"], header["share"]
        if name not in files:
            files[name] = [
                np.lib.format.open_memmap(_path(folder, name, number), "w+", array.dtype, (share,) + array.shape[1:])
                for number, array in enumerate(arrays)
            ]
            stored[name], shares[name] = np.zeros(share, bool), share
        place = slice(start, start + len(arrays[0]))
        for file, array in zip(files[name], arrays):
            file[place] = array
        if stored[name][place].any():
            raise RuntimeError("--data: rows of the %s data came twice to this rank" % name)
        stored[name][place] = True
    for name, seen in stored.items():
        if not seen.all():
            raise RuntimeError("--data: %d rows of the %s data did not come" % (len(seen) - int(seen.sum()), name))
        for file in files[name]:
            file.flush()
    return shares


def batch_rows(given, size, strategy):
    """The batch size in force: `given`, or `BATCH_ROWS_PER_WORKER` a worker (all-reduce counts the global batch)."""
    return given or BATCH_ROWS_PER_WORKER * (size if strategy == "allreduce" else 1)


def edges(rows, rank, size, batch, strategy):
    """Where a rank's batches begin and end within its share: step s has the local rows edges[s] to edges[s + 1].

    rows: of all ranks; batch: the global batch for "allreduce", else the worker's. Every rank gets the same number of
    steps. For all-reduce, rows 0..rows-1 of an epoch are cut into global batches, and position p is local row p // size
    of rank p % size: a batch of a rank may be empty, at the end or where the global batch is smaller than `size`.
    """
    share = (rows - rank + size - 1) // size
    if strategy == "allreduce":
        steps = -(-rows // batch)
        ends = np.minimum(np.arange(steps + 1, dtype=np.int64) * batch, rows)
        return -(-(ends - rank) // size)
    largest_share = (rows + size - 1) // size
    steps = (largest_share + batch - 1) // batch
    # Where another rank has a row more and needs a step for it, this one's last full batch gives a row to that step.
    # With batches of one row it cannot, and makes a step less.
    places = np.minimum(np.arange(steps + 1, dtype=np.int64) * batch, share - np.arange(steps, -1, -1, dtype=np.int64))
    return np.unique(np.maximum(places, 0))


def datasets(folder, manifest, rank, size, batch_size, seed, strategy):
    """(dataset, validation or None): tf.data of batches (features, label), or of features alone without a label.

    folder: what `store` wrote; manifest: `Feed.manifest`; batch_size: rows, global for "allreduce", else the worker's,
    or None for the default. Both have a known cardinality, the same on every rank, and static shapes but for the batch.
    Each iteration of `dataset` goes through the share in a new order, drawn from (seed, iteration, rank); `validation`
    keeps the order of the rows. Floats come as Keras' floatx as it is now, labels that are whole numbers or booleans as
    int64. Except for "allreduce", `validation` is all of the validation rows on every rank.
    """
    if size != manifest["size"]:
        raise ValueError("the data was dealt to %d ranks, not to %d" % (manifest["size"], size))
    import tensorflow as tf

    batch = batch_rows(batch_size, size, strategy)
    seed = int(seed) % (1 << 64)
    places = edges(manifest["rows"], rank, size, batch, strategy)
    train = _dataset(tf, _Share(tf, folder, TRAIN, manifest), places, (seed, rank))
    if not manifest["validation_rows"]:
        return train, None
    if manifest["validation_whole"]:
        rank, size = 0, 1
    places = edges(manifest["validation_rows"], rank, size, batch, strategy)
    return train, _dataset(tf, _Share(tf, folder, VALIDATION, manifest), places, None)


class _Share:
    """A rank's rows of one set, and how they become a dataset's elements."""

    def __init__(self, tf, folder, name, manifest):
        self._features, self._label = manifest["features"], manifest["label"]
        self._arrays, self._dtypes, specs = [], [], []
        for number, tensor in enumerate(manifest["tensors"]):
            path = _path(folder, name, number)
            if os.path.exists(path):
                array = np.load(path, mmap_mode="r")
            else:  # this rank's share of the set is no row
                array = np.empty([0] + tensor["shape"], tensor["dtype"])
            use = tf.keras.backend.floatx() if tensor["use"] == "floatx" else tensor["use"]
            self._arrays.append(array)
            self._dtypes.append(object if use == "string" else use)
            specs.append(tf.TensorSpec([None] + tensor["shape"], use))
        self.signature = self._element(specs)

    def _element(self, tensors):
        shown = self._features
        features = (
            tensors[shown] if isinstance(shown, int) else {name: tensors[number] for name, number in shown.items()}
        )
        return features if self._label is None else (features, tensors[self._label])

    def batch(self, rows):
        """The element of some local rows (a slice, or an array of indices)."""
        return self._element([np.asarray(array[rows], dtype) for array, dtype in zip(self._arrays, self._dtypes)])


def _dataset(tf, share, places, shuffle):
    iterations = itertools.count()

    def batches():
        order = None
        if shuffle is not None:
            seed, rank = shuffle
            order = np.random.default_rng([seed, next(iterations), rank]).permutation(int(places[-1]))
        for first, last in zip(places[:-1].tolist(), places[1:].tolist()):
            yield share.batch(slice(first, last) if order is None else order[first:last])

    dataset = tf.data.Dataset.from_generator(batches, output_signature=share.signature)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(places) - 1)).prefetch(PREFETCH_BATCHES)
