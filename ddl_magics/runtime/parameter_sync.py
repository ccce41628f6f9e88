"""Training against a parameter server: a worker trains on its own batches and meets the centre once a window.

Keras' own optimizer makes the local steps. What is committed and what comes back is the rule's matter (rules.py).
"""

import time

import keras
import numpy as np

from . import optimizers, reduce, rules, stability
from .outcome import NotANumber
from .parameter_client import NonFinite

REPORT_SECONDS = 1.0


class ParameterSync(keras.callbacks.Callback):
    """Added to every fit of a `ps` run. `end_epoch` and `validate` are called by the hooks of keras_fit.py."""

    def __init__(self, context):
        super().__init__()
        self._context, self._server = context, context.server
        self._window = context.config["window"] or context.size
        self._begun = False

    def on_train_begin(self, logs=None):
        if self.model.built:
            self._begin()

    def _begin(self):
        """Take the chief's weights as the first centre."""
        context = self._context
        self._weights = list(self.model.trainable_weights)
        rate = optimizers.learning_rate(self.model.optimizer)
        self._make_rule(rate)
        initial = self._flat_weights()
        centre, self._version = self._server.begin(
            context.fit, initial if context.is_chief else None, initial.dtype, initial.size, rate
        )
        self._begun = True
        self._batches = self._seq = 0
        self._adopt(centre)
        self._open_report()

    def _make_rule(self, rate):
        """Take what the rule derives from the optimizer, and say before training what will probably diverge."""
        context, optimizer = self._context, self.model.optimizer
        self._rule = rules.get(context.config["rule"], context.size, rate)
        if self._rule.look_ahead:
            optimizers.require_look_ahead(optimizer, self._rule.name)
        momentum = optimizers.momentum(optimizer)
        warning = stability.warning(self._rule, rate, momentum, self._window, context.size)
        if warning and context.is_chief:
            context.emit("notice", level="warning", message=warning)

    def _open_report(self):
        self._reported, self._commits, self._staleness, self._staleness_max = time.monotonic(), 0, 0, 0

    def _flat_weights(self):
        """All trainable weights as one flat vector, of the widest of their dtypes."""
        return np.concatenate([np.asarray(variable).reshape(-1) for variable in self._weights])

    def _look_ahead(self):
        """What the rule does not count as the worker's weights."""
        return optimizers.look_ahead(self.model.optimizer, self._weights) if self._rule.look_ahead else 0.0

    def _adopt(self, centre):
        self._base = centre
        reduce.assign(self._weights, centre)

    def on_train_batch_end(self, batch, logs=None):
        if not self._begun:  # a model that was built by its first batch
            self._begin()
            return
        self._batches = batch + 1 - self._context.synced_step
        if self._batches >= self._window:
            self._commit()
            self._context.synced_step = batch + 1

    def on_epoch_begin(self, epoch, logs=None):
        self._context.synced_step = 0

    def _commit(self):
        began = time.monotonic()
        context = self._context
        if self._rule.fresh:
            self._base, self._version = self._server.pull(context.fit)
        ahead = self._look_ahead()
        local = self._flat_weights() - ahead
        delta = self._rule.delta(local, self._base, self._batches)
        self._seq += 1
        try:
            centre, self._version, staleness = self._server.commit(
                context.fit, self._seq, delta, self._version, self._batches
            )
        except NonFinite as error:
            where = " at step %d of epoch %d; lower the learning rate or clip gradients" % (
                context.step + 1,
                context.epoch + 1,
            )
            raise NotANumber(error.rank, str(error) + where) from None
        self._base = centre
        reduce.assign(self._weights, self._rule.resume(local, delta, centre) + ahead)
        self._batches = 0
        context.waited += time.monotonic() - began
        self._report(staleness)

    def _report(self, staleness):
        self._commits += 1
        self._staleness += staleness
        self._staleness_max = max(self._staleness_max, staleness)
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self._send_report()

    def _send_report(self):
        if self._commits:
            mean = self._staleness / self._commits
            self._context.emit("commits", commits=self._commits, staleness=mean, staleness_max=self._staleness_max)
        self._open_report()

    def end_epoch(self, model):
        """Commit the last, partial window, wait for the other workers, and go on from the centre.

        Metrics become those of all workers, BatchNorm's statistics the mean over workers.
        """
        context = self._context
        if not self._begun:
            self._begin()
        self._batches = context.step - context.synced_step
        if self._batches:
            self._commit()
        self._send_report()
        states = [variable for metric in model.metrics for variable in metric.variables]
        averaged = context.hooks.statistics(model)
        stop = context.stop_requested or context.stop_asked
        sums, means, centre, self._version, stop = self._server.epoch_end(
            context.fit, context.epoch, _flat(states), _flat(averaged), stop
        )
        context.stop_agreed = context.stop_agreed or stop
        reduce.assign(states, sums)
        reduce.assign(averaged, means)
        self._adopt(centre)

    def validate(self, evaluate):
        """The chief's validation of the centre, for all workers."""
        context = self._context
        logs = evaluate() if context.is_chief else None
        return self._server.share(context.fit, "validation %d" % context.epoch, logs)


def _flat(variables):
    values = [np.asarray(variable, np.float64).reshape(-1) for variable in variables]
    return np.concatenate(values) if values else np.zeros(0)
