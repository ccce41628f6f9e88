"""What a call of a model's method gets instead of its data on a rank: its share of it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..keras_types import Batch, Model
from ..rank.rank import Rank
from . import derived_datasets, share, single_batch
from .calls import TEST_BATCH, TRAIN_BATCH, Calls
from .chief_feed import ChiefFeed
from .epoch_shares import EpochShares
from .fit_in_progress import FitInProgress
from .placement import Placement

#: A worker's part of a batch below which exchanging gradients takes longer than making them.
SMALL_SHARE_ROWS = 8

_STATEFUL = (
    "the layer %r is stateful: it keeps a state for each row of a batch of fixed size, and workers get a slice of it; "
    "use --strategy single, or mark a dataset of each worker's own batches with ddl.local(...)"
)


class CallData:
    """The data of the call in progress. recurrent: Keras' class of layers that may keep a state for each row."""

    def __init__(self, rank: Rank, calls: Calls, recurrent: Any, feed: ChiefFeed, placement: Placement) -> None:
        self._feed, self._placement = feed, placement
        self._rank, self._config, self._calls, self._recurrent = rank, rank.config, calls, recurrent

    def shared(
        self, dataset: Any, batch: int | None, of_arrays: bool, each_epoch: bool = False, drawn: int | None = None
    ) -> tuple[Any, bool]:
        """What the call gets instead of `dataset`: (a dataset, whether that has every n-th batch only).

        batch: rows of a batch, None where unknown; of_arrays: Keras has made the dataset of arrays. each_epoch: each
        epoch of a fit begins with a new iterator. drawn: the batches of an epoch, where one iterator can go through all
        epochs, as random operations keep drawing.
        """
        call, config, fit = self._calls.current, self._config, self._calls.fit
        if call is None or not isinstance(dataset, tf.data.Dataset):
            return dataset, False
        local = share.is_local(dataset)
        if call.kind == "evaluate" and local and config.size > 1 and self._rank.peers.ring is not None:
            call.shared = True
        if call.kind == "predict" or (call.kind == "evaluate" and not call.shared):
            return dataset, False
        validates = call.kind == "fit" and fit is not None and fit.has_data
        if call.kind == "fit" and fit is not None:
            fit.has_data = True
            fit.batch = fit.batch if validates else int(batch or 0)
        if local or config.size == 1 or (validates and self._rank.server):
            return share.uncut(dataset), False
        if config.local_updates and not validates:
            if drawn and config.changes and fit is not None:
                fit.shares_epochs = True
                return EpochShares(dataset, drawn, lambda: self._rank.peers.place, of_arrays), True
            return share.shard(dataset, *self._place(fit, each_epoch), of_arrays), True
        if not validates:
            self.refuse_stateful(None if fit is None else fit.model)
            self._hint_small_batch(batch)
        if validates and fit is not None:
            fit.cuts_validation = True
        compares = self._feed.compares
        dealt = self._feed.shares(dataset, of_arrays) if config.reduces_gradients else None
        if dealt or compares or self._rank.peers.regrouping is None:  # who joins has nobody to compare with
            return dealt or share.cut(dataset, *self._rank.peers.place, of_arrays), False
        if not validates and fit is not None:
            dataset, fit.cutter = share.whole(dataset, of_arrays)
            return dataset, False
        return share.cut(dataset, self._placement.position, self._placement.size, of_arrays), False

    def cut_batch(self, batch: Batch) -> Any:
        """What a call that takes one batch gets instead of it: this rank's `Share`, if it can be cut."""
        call, config = self._calls.current, self._config
        if call is None or call.kind not in (TRAIN_BATCH, TEST_BATCH) or not (call.shared or config.size == 1):
            return batch
        cut = single_batch.cut(batch, *self._rank.peers.place)
        if cut is None:
            call.shared = False
            return batch
        if call.trains:
            self._hint_small_batch(int(cut.total))
        return cut

    def _place(self, fit: FitInProgress | None, each_epoch: bool) -> tuple[Any, Any]:
        """(position, size) by which whole batches are shared out: variables where ranks come and go between epochs."""
        peers = self._rank.peers
        if not self._config.changes or fit is None:
            return peers.place
        if not each_epoch:
            if peers.sharers is not None:  # those at the beginning of the run: who has come later has nothing
                peers.sharers = range(self._config.workers)
            return peers.place
        fit.shares_epochs = True
        return self._placement.position, self._placement.size

    def shards_steps(self, dataset: Any) -> bool:
        """Whether `steps_per_epoch` of a fit counts the batches of all ranks, of which each has its share of --data."""
        is_part = isinstance(dataset, tf.data.Dataset) and derived_datasets.is_part(dataset)
        return self._config.local_updates and self._config.size > 1 and is_part

    def shard_steps(self, steps: int | None) -> int | None:
        """How many of an epoch's `steps` batches a dataset of every n-th has. ValueError where some rank had none."""
        position, size = self._rank.peers.place
        fit = self._calls.fit
        rehearses = fit is not None and fit.checkpoints is None
        most = max(size, self._config.max_workers) if self._config.changes and not rehearses else size
        if steps is not None and steps < most:
            message = "%d batches an epoch cannot feed %d workers: lower the batch size or --workers"
            raise ValueError(message % (steps, most))
        return share.shard_steps(steps, position, size)

    def refuse_stateful(self, model: Model | None) -> None:
        """ValueError for a layer that keeps a state for each row of a batch from one batch to the next."""
        for layer in [] if model is None else model._flatten_layers():
            if isinstance(layer, self._recurrent) and getattr(layer, "stateful", False):
                raise ValueError(_STATEFUL % layer.name)

    def _hint_small_batch(self, batch: int | None) -> None:
        size = self._config.size
        if batch and batch < SMALL_SHARE_ROWS * size:
            message = "batch_size %d is %.3g rows a worker: they will mostly wait for each other; raise batch_size"
            self._rank.reporter.notice_once("info", message % (batch, batch / size))
