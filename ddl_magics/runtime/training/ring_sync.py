"""Workers with updates of their own that meet in collectives: `--strategy average`, and `--rule easgd`.

average: at the end of each epoch every worker's weights become the mean over all. easgd: every window the workers and a
centre, of which each holds the same copy, pull each other (parameter_server/update_rules.py), and the epoch ends with
all at the centre. Shares may differ by a batch: a worker that has trained all its batches takes part until all have.

Where ranks come and go (membership.py), an epoch's batches are shared out among those who are there at its beginning,
and who is lost has no part in the next mean or round.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import keras
import numpy as np

from ..collectives.announcement import EPOCH, Announcement
from ..gradients import reduce
from ..gradients.metric_sums import MetricSums
from ..keras_types import Model
from ..parameter_server import update_rules
from ..parameter_server.rule_spec import Rule
from ..rank.rank import Rank
from . import learning_rate, optimizers
from .fit_in_progress import FitInProgress
from .keras_access import KerasAccess

#: An `Announcement`'s flag: this worker has trained all its batches of the epoch.
EPOCH_ENDED = 1 << 16


class RingSync(keras.callbacks.Callback):
    """Added to every fit of such a run. The hooks of Keras call `end_epoch`."""

    def __init__(self, rank: Rank, fit: FitInProgress, access: KerasAccess, metric_sums: MetricSums) -> None:
        super().__init__()
        self._rank, self._fit, self._access, self._metric_sums = rank, fit, access, metric_sums
        self._rule: Rule | None = None
        self._window = 1
        self._begun = False
        self._windows = 0  # of the epoch, that are over: with steps_per_execution, not every batch is seen

    def on_train_begin(self, logs: Any = None) -> None:
        checkpoints = self._fit.checkpoints
        self._count_workers(None if checkpoints is None else checkpoints.steps_of_all)
        if self.model.built:
            self._begin()

    def _count_workers(self, steps: int | None = None) -> None:
        """Have rule and schedule be those for the workers that there are. steps: as `count_steps_of_all` has it."""
        self._window = self._rank.config.spec.window or self._rank.peers.size
        learning_rate.count_steps_of_all(self.model, self._rank.peers.size, steps)
        if self._rank.config.rule is not None:
            self._rule = update_rules.make(self._rank.config.rule, self._rank.peers.size)
            learning_rate.follow(self._rank, self._rule, self.model)

    def _begin(self) -> None:
        self._begun = True
        self._weights = list(self.model.trainable_weights)
        self._rank.progress.sync_rounds = 0
        if self._fit.checkpoints is None or not self._fit.checkpoints.joins:
            reduce.broadcast_weights(self._rank.peers, self._access.weights(self.model))
        self._centre = reduce.flat(self._weights)

    def on_train_end(self, logs: Any = None) -> None:
        learning_rate.scale(self.model.optimizer, 1.0)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        progress = self._rank.progress
        progress.epoch, progress.step, progress.sync_rounds = epoch, 0, 0
        self._windows = 0
        if self._fit.membership is not None:
            self._fit.membership.begin_epoch()
            self._count_workers()

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
            self._centre /= len(self._sum(self._centre))
        else:
            while not self._pull_each_other(has_ended=True):
                pass
        reduce.assign(self._weights, self._centre)
        self._rank.progress.sync_rounds += 1
        averaged = self._access.statistics(model) + optimizers.moving_averages(model.optimizer)
        reduce_metrics = functools.partial(self._metric_sums.reduce, EPOCH, model.metrics, averaged)
        membership = self._fit.membership
        if membership is None:
            reduce_metrics()
        else:
            membership.until_complete(reduce_metrics)
