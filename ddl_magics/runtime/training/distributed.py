"""`ddl.distribute`: gives each rank its slices of the batches of a cell's own loop."""

from __future__ import annotations

from typing import Any, Iterator

import tensorflow as tf

from ..gradients.batch import Share
from ..keras_types import Batch
from ..rank.peers import Peers
from . import share, single_batch
from .chief_feed import ChiefFeed
from .loop_slices import LoopSlices
from .own_loop import MEAN, SUM

_IN_GRAPH = (
    "ddl.distribute(...) cannot be iterated over inside a tf.function: write the loop outside, and call a tf.function "
    "with each batch"
)
_NOT_CUT = "the arrays of this batch have different numbers of rows, or none: ddl.distribute cannot cut it"


class DistributedBatches:
    """An iterable of this rank's slice of each batch. Every iteration begins the data anew."""

    def __init__(self, data: Any, reduction: str | None, loop: LoopSlices, peers: Peers, feed: ChiefFeed) -> None:
        self._data, self._reduction, self._loop, self._peers, self._feed = data, reduction, loop, peers, feed

    def __iter__(self) -> Iterator[Batch]:
        if not tf.executing_eagerly():
            raise RuntimeError(_IN_GRAPH)
        return self._read()

    def _read(self) -> Iterator[Batch]:
        reader = object()
        try:
            for slice_of_batch in self._shares():
                self._loop.read(reader, slice_of_batch, self._reduction)
                yield slice_of_batch.batch
        finally:
            self._loop.end_reading(reader)
        self._loop.end_epoch()

    def _shares(self) -> Iterator[Share]:
        data, peers = self._data, self._peers
        if not isinstance(data, tf.data.Dataset):
            is_sequence = hasattr(data, "__getitem__") and not hasattr(data, "__iter__")  # of Keras, without iterator
            batches = (data[i] for i in range(len(data))) if is_sequence else iter(data)
            return (cut(batch, peers) for batch in batches)
        if share.is_local(data):
            return iter(share.uncut(data))
        dealt = self._feed.shares(data) if peers.config.reduces_gradients else None
        return iter(dealt or share.cut(data, *peers.place))

    def __len__(self) -> int:
        return len(self._data)

    def __getattr__(self, name: str) -> Any:
        message = "ddl.distribute(...) has no %r"
        if hasattr(tf.data.Dataset, name):
            message += "; call it on the dataset: ddl.distribute(dataset.%s(...))" % name
        raise AttributeError(message % name)


def distribute(data: Any, reduction: str | None, loop: LoopSlices, peers: Peers, feed: ChiefFeed) -> Any:
    """`DistributedBatches` of a dataset or another iterable of batches; of one batch of arrays, this rank's slice."""
    if reduction not in (None, MEAN, SUM):
        raise ValueError("reduction is %r; it must be 'mean' or 'sum'" % (reduction,))
    if not hasattr(data, "shape") and not isinstance(data, (tuple, list, dict)):
        return DistributedBatches(data, reduction, loop, peers, feed)
    if not tf.executing_eagerly():
        raise RuntimeError(_IN_GRAPH)
    local_share = cut(data, peers)
    loop.read(distribute, local_share, reduction)
    return local_share.batch


def cut(batch: Batch, peers: Peers) -> Share:
    """This rank's share of a batch of arrays. ValueError where it cannot be cut."""
    local_share = single_batch.cut(batch, *peers.place)
    if local_share is None:
        raise ValueError(_NOT_CUT)
    return local_share
