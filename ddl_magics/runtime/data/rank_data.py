"""--data in a rank's process: its share of the rows, which share_files.py has stored, as `dataset` and `validation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..keras_types import Dataset, TensorFlow
from . import reader, share_files
from .row_order import RowOrder

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Manifest, SetName

#: The batch of a worker where the user gives none.
BATCH_ROWS_PER_WORKER = 32


def batch_rows(requested: int | None, size: int, global_batch: bool) -> int:
    """Rows of the global batch, or of a worker's own: `requested`, or `BATCH_ROWS_PER_WORKER` a worker."""
    return requested or BATCH_ROWS_PER_WORKER * (size if global_batch else 1)


def edges(rows: int, rank: int, size: int, batch: int, global_batch: bool) -> npt.NDArray[np.int64]:
    """Where a rank's batches begin and end in its share: step s has the local rows edges[s] to edges[s + 1] - 1.

    Args:
        rows: of all `size` ranks together; row i is local row i // size of rank i % size.
        batch: rows of the global batch, or of the worker's own.

    Returns:
        int64 of shape (steps + 1,), ascending from 0 to the rank's rows.

    Global batches cut rows 0 to rows - 1 of an epoch, so that all ranks make the same steps; a rank's part of a batch
    may be empty, at the end or where the global batch is smaller than `size`. With batches of their own, all ranks make
    the same number of steps, and none is empty; only with batches of one row may some make a step less.
    """
    share = (rows - rank + size - 1) // size
    if global_batch:
        steps = -(-rows // batch)
        stops = np.minimum(np.arange(steps + 1, dtype=np.int64) * batch, rows)
        return -(-(stops - rank) // size)
    largest_share = (rows + size - 1) // size
    steps = (largest_share + batch - 1) // batch
    # Where another rank has a row more and needs a step for it, this one's last full batch gives a row to that step.
    # With batches of one row it cannot, and makes a step less.
    stops = np.minimum(np.arange(steps + 1, dtype=np.int64) * batch, share - np.arange(steps, -1, -1, dtype=np.int64))
    return np.unique(np.maximum(stops, 0))


def row_bytes(manifest: Manifest) -> int:
    """The bytes of one row with the numbers as they were dealt."""
    return sum(share_files.row_bytes(tensor, np.dtype(tensor["dtype"])) for tensor in manifest["tensors"])


def element_bytes(manifest: Manifest) -> int:
    """The bytes of the rows that one element has and the one before it has not."""
    sequences = manifest.get("sequences")
    new_rows = 1 if sequences is None else min(sequences["stride"], sequences["length"] + sequences["horizon"])
    return new_rows * row_bytes(manifest)


def datasets(
    folder: str,
    manifest: Manifest,
    rank: int,
    size: int,
    batch_size: int | None,
    seed: int,
    global_batch: bool,
    epochs: reader.Epochs | None = None,
) -> tuple[Dataset, Dataset | None]:
    """(dataset, validation or None): tf.data of batches (features, label), (features, label, weight), or features.

    Args:
        folder: as `share_files.store` wrote it.
        manifest: `feed.Feed.manifest`.
        batch_size: in rows, of the global batch or of the worker's own; None for the default.
        epochs: counts those of `dataset`.

    Raises:
        ValueError: the data was dealt to another `size`.

    A tensor has the shape (rows of the batch, *its shape in the manifest), static but for the rows. Features of windows
    have the shape (windows of the batch, length, *that), and label and weight are those of the label's row. Floats and
    weights have Keras' floatx as it is now; a label of whole numbers or booleans is int64; text is tf.string; other
    features keep their dtype. Both datasets know their cardinality in steps, as `edges` has them.

    Each iteration of `dataset` goes through the share in a new order (row_order.py). `validation` keeps the order of
    the rows, and has all of them on every rank where the manifest says so.
    """
    if size != manifest["size"]:
        raise ValueError("the data was dealt to %d ranks, not to %d" % (manifest["size"], size))
    import tensorflow as tf

    batch = batch_rows(batch_size, size, global_batch)
    seed = int(seed) % (1 << 64)
    steps = edges(manifest["rows"], rank, size, batch, global_batch)
    train_share = share(tf, folder, "train", manifest)
    order = RowOrder(manifest["rows"], rank, size, element_bytes(manifest), seed)
    train = reader.shuffled(tf, train_share, steps, order, epochs or reader.Epochs())
    if not manifest["validation_rows"]:
        return train, None
    if manifest["validation_whole"]:
        rank, size = 0, 1
    steps = edges(manifest["validation_rows"], rank, size, batch, global_batch)
    return train, reader.in_order(tf, share(tf, folder, "validation", manifest), steps)


def share(tf: TensorFlow, folder: str, name: SetName, manifest: Manifest) -> reader.StoredShare:
    """This rank's rows of a set, in `folder`."""
    paths = [
        (share_files.path(folder, name, index), share_files.text_path(folder, name, index))
        for index in range(len(manifest["tensors"]))
    ]
    return reader.StoredShare(tf, paths, manifest, share_files.starts_path(folder, name))
