"""Workers that train on batches of their own and meet in collectives: `--strategy average`, and `--rule easgd`.

average: at the end of each epoch every worker's weights become the mean over all. easgd: every window the workers and a
centre, of which each holds the same copy, pull each other (rules.py), and the epoch ends with all at the centre.
Shares may differ by a batch: a worker that has no more of an epoch takes part in meetings until nobody has.
"""

import time

import keras

from . import learning_rate, reduce, rules
from .parts import EPOCH

#: A `Part`'s flag: this worker has trained all its batches of the epoch.
DONE = 1 << 16


class RingSync(keras.callbacks.Callback):
    """Added to every fit of such a run. `end_epoch` is called by the hooks of keras_fit.py."""

    def __init__(self, context):
        super().__init__()
        self._context = context
        rule = context.config["rule"]
        self._rule = rules.get(rule, context.size) if rule else None
        self._window = context.config["window"] or context.size
        self._begun = False

    def on_train_begin(self, logs=None):
        if self._rule is not None:
            learning_rate.follow(self._context, self._rule, self.model.optimizer)
        if self.model.built:
            self._begin()

    def _begin(self):
        self._begun = True
        self._weights = list(self.model.trainable_weights)
        self._context.meetings = 0
        reduce.broadcast_weights(self._context, self._context.hooks.weights(self.model))
        self._centre = reduce.flat(self._weights)

    def on_train_end(self, logs=None):
        learning_rate.scale(self.model.optimizer, 1.0)

    def on_epoch_begin(self, epoch, logs=None):
        self._context.meetings = 0

    def on_train_batch_end(self, batch, logs=None):
        if not self._begun:  # a model that was built by its first batch
            self._begin()
        elif self._rule is not None and (batch + 1) % self._window == 0:
            self._pull_each_other(done=False)

    def _pull_each_other(self, done):
        """One round of the elastic rule; True if all workers are `done` with the epoch."""
        began = time.monotonic()
        local = reduce.flat(self._weights)
        delta = self._rule.delta(local, self._centre, self._window)
        reduce.assign(self._weights, self._rule.resume(local, delta, self._centre))
        parts = self._sum(delta, DONE if done else 0)
        self._centre = self._rule.merge(self._centre, delta, 0, None)
        self._context.waited += time.monotonic() - began
        return all(part.flags & DONE for part in parts)

    def _sum(self, vector, flags=0):
        """Sum a vector over the workers, in place. Returns their parts."""
        context = self._context
        context.meetings += 1
        parts = context.ring.allreduce(vector, reduce.part(context, EPOCH, flags=flags))
        reduce.note_stop(context, parts)
        return parts

    def end_epoch(self, model):
        """Bring all workers to the same weights; metrics become those of all, BatchNorm's statistics the mean."""
        if not self._begun:
            self._begin()
        if self._rule is None:
            self._centre = reduce.flat(self._weights)
            self._sum(self._centre)
            self._centre /= self._context.size
        else:
            while not self._pull_each_other(done=True):
                pass
        reduce.assign(self._weights, self._centre)
        self._context.meetings += 1
        reduce.sum_metrics(self._context, EPOCH, model.metrics, self._context.hooks.statistics(model))
