"""Workers with updates of their own that meet in collectives: `--strategy average`, and `--rule easgd`.

average: at the end of each epoch every worker's weights become the mean over all. easgd: every window the workers and a
centre, of which each holds the same copy, pull each other (parameter_server/update_rules.py), and the epoch ends with
all at the centre. Shares may differ by a batch: a worker that has trained all its batches takes part until all have.
"""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np

from ..collectives.announcement import EPOCH, Announcement
from ..gradients import reduce
from ..gradients.metric_sums import MetricSums
from ..keras_types import Model
from ..parameter_server import update_rules
from ..rank.rank import Rank
from . import learning_rate, optimizers
from .keras_access import KerasAccess

#: An `Announcement`'s flag: this worker has trained all its batches of the epoch.
EPOCH_ENDED = 1 << 16


class RingSync(keras.callbacks.Callback):
    """Added to every fit of such a run. The hooks of Keras call `end_epoch`."""

    def __init__(self, rank: Rank, access: KerasAccess, metric_sums: MetricSums) -> None:
        super().__init__()
        config = rank.config
        self._rank, self._access, self._metric_sums = rank, access, metric_sums
        self._rule = update_rules.make(config.rule, config.size) if config.rule else None
        self._window = config.spec.window or config.size
        self._begun = False
        self._windows = 0  # of the epoch, that are over: with steps_per_execution, not every batch is seen

    def on_train_begin(self, logs: Any = None) -> None:
        learning_rate.count_steps_of_all(self.model.optimizer, self._rank.config.size)
        if self._rule is not None:
            learning_rate.follow(self._rank, self._rule, self.model)
        if self.model.built:
            self._begin()

    def _begin(self) -> None:
        self._begun = True
        self._weights = list(self.model.trainable_weights)
        self._rank.progress.sync_rounds = 0
        reduce.broadcast_weights(self._rank.peers, self._access.weights(self.model))
        self._centre = reduce.flat(self._weights)

    def on_train_end(self, logs: Any = None) -> None:
        learning_rate.scale(self.model.optimizer, 1.0)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._rank.progress.sync_rounds = 0
        self._windows = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._begun:  # a model that was built by its first batch
            self._begin()
        elif self._rule is not None and (batch + 1) // self._window > self._windows:
            self._pull_each_other(has_ended=False)
        self._windows = (batch + 1) // self._window

    def _pull_each_other(self, has_ended: bool) -> bool:
        """One round of the elastic rule; True if the epoch has ended on all workers."""
        assert self._rule is not None
        began = time.monotonic()
        local = reduce.flat(self._weights)
        delta = self._rule.delta(local, self._centre, self._window)
        reduce.assign(self._weights, self._rule.resume(local, delta, self._centre))
        announced = self._sum(delta, EPOCH_ENDED if has_ended else 0)
        self._centre = self._rule.merge(self._centre, delta, 0, None)
        self._rank.peers.timings.waited += time.monotonic() - began
        return all(announcement.flags & EPOCH_ENDED for announcement in announced)

    def _sum(self, vector: np.ndarray, flags: int = 0) -> list[Announcement]:
        """Sum a vector over the workers, in place. Returns their announcements."""
        self._rank.progress.sync_rounds += 1
        return self._rank.peers.allreduce(vector, EPOCH, flags)

    def end_epoch(self, model: Model) -> None:
        """Bring all workers to the same weights. Metrics become those of all, moving statistics the mean."""
        if not self._begun:
            self._begin()
        if self._rule is None:
            self._centre = reduce.flat(self._weights)
            self._sum(self._centre)
            self._centre /= self._rank.config.size
        else:
            while not self._pull_each_other(has_ended=True):
                pass
        reduce.assign(self._weights, self._centre)
        self._rank.progress.sync_rounds += 1
        averaged = self._access.statistics(model) + optimizers.moving_averages(model.optimizer)
        self._metric_sums.reduce(EPOCH, model.metrics, averaged)
