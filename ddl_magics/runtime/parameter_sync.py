"""Training against a parameter server: a worker trains on its own batches and meets the centre once a window.

Keras' own optimizer makes the local steps. What is committed and what comes back is the rule's matter (rules.py).
"""

import time

import keras
import numpy as np

from . import learning_rate, optimizers, reduce, rules, stability
from .outcome import NotANumber
from .parameter_client import NonFinite
from .parameter_exchange import Exchanger
from .parameter_report import CommitReport
from .rule import RATE


class ParameterSync(keras.callbacks.Callback):
    """Added to every fit of a `ps` run. `end_epoch` and `validate` are called by the hooks of keras_fit.py."""

    def __init__(self, context):
        super().__init__()
        self._context, self._server = context, context.server
        self._window = context.config["window"] or context.size
        self._begun = False
        self._synced_step = 0  # batches of this epoch that were handed over

    def on_train_begin(self, logs=None):
        self._rule = self._make_rule()
        taken_up = self._context.taken_up
        if self.model.built and not taken_up.skipped:
            self._begin()
            taken_up.join(self.model, self._server.epoch)

    def _begin(self):
        """Take the chief's weights as the first centre."""
        context = self._context
        self._weights = list(self.model.trainable_weights)
        rate = optimizers.learning_rate(self.model.optimizer)
        initial = reduce.flat(self._weights)
        centre, version = self._server.begin(
            context.fit, initial if context.is_chief else None, initial.dtype, initial.size, rate
        )
        self._begun = True
        self._report = CommitReport()
        self._exchanger = Exchanger(self._rule, self._server, context.fit, self._window)
        self._adopt(centre, version)

    def _make_rule(self):
        """Take what the rule derives from the optimizer, and say before training what will probably diverge."""
        context, optimizer = self._context, self.model.optimizer
        rate = optimizers.learning_rate(optimizer)
        named = context.config["rule"]
        rule = rules.get(named, context.size, rate)
        if RATE.name not in rules.read(named)[1]:
            rule = stability.steady(rule, rate, optimizers.momentum(optimizer), self._window)
        if rule.look_ahead:
            optimizers.require_look_ahead(optimizer, rule.name)
        learning_rate.follow(context, rule, optimizer)
        warning = stability.warning(rule, rate, optimizers.momentum(optimizer), self._window, context.size)
        if warning and context.is_chief:
            context.emit("notice", level="warning", message=warning)
        return rule

    def _adopt(self, centre, version):
        """Go on from a centre that all workers have."""
        self._exchanger.start(centre, version)
        reduce.assign(self._weights, centre)

    def on_epoch_begin(self, epoch, logs=None):
        self._synced_step = 0

    def on_train_batch_end(self, batch, logs=None):
        if not self._begun:  # a model that was built by its first batch
            self._begin()
            self._synced_step = batch + 1
            return
        trained = batch + 1 - self._synced_step
        full = trained >= self._window
        if self._exchanger.answered or (full and self._exchanger.in_flight):
            self._collect(trained)
        if full:
            self._send(trained)
            self._synced_step = batch + 1

    def on_train_end(self, logs=None):
        learning_rate.scale(self.model.optimizer, 1.0)
        if self._begun:
            self._exchanger.close()

    def _send(self, batches, ends_epoch=False):
        """Commit a window of `batches` batches, beside the training of the next."""
        began = time.monotonic()
        local = reduce.flat(self._weights)
        if self._rule.look_ahead:
            local -= optimizers.look_ahead(self.model.optimizer, self._weights)
        self._exchanger.send(local, batches, ends_epoch)
        self._context.waited += time.monotonic() - began

    def _collect(self, trained):
        """Take what came of the last commit, after which `trained` batches were trained."""
        began = time.monotonic()
        context = self._context
        try:
            exchanged = self._exchanger.collect(trained)
        except NonFinite as error:
            where = " at step %d of epoch %d; lower the learning rate or clip gradients" % (
                context.step + 1,
                context.epoch + 1,
            )
            raise NotANumber(error.rank, str(error) + where) from None
        reduce.add(self._weights, exchanged.shift)
        context.waited += time.monotonic() - began
        self._report.add(exchanged.staleness)
        if self._report.due:
            self._send_report()

    def _send_report(self):
        fields = self._report.take()
        if fields:
            self._context.emit("commits", **fields)

    def end_epoch(self, model):
        """Commit the last, partial window, wait for the other workers, and go on from the centre.

        Metrics become those of all workers, BatchNorm's statistics the mean over workers.
        """
        context = self._context
        if not self._begun:
            self._begin()
        trained = context.step - self._synced_step
        if self._exchanger.in_flight:
            self._collect(trained)
        if trained:
            self._send(trained, ends_epoch=True)
            self._collect(0)
        self._send_report()
        states = [variable for metric in model.metrics for variable in metric.variables]
        averaged = context.hooks.statistics(model)
        stop = context.stop_requested or context.stop_asked
        sums, means, centre, version, stop = self._server.epoch_end(
            context.fit, context.epoch, _flat(states), _flat(averaged), stop
        )
        context.stop_agreed = context.stop_agreed or stop
        reduce.assign(states, sums)
        reduce.assign(averaged, means)
        self._adopt(centre, version)

    def validate(self, evaluate):
        """The chief's validation of the centre, for all workers."""
        context = self._context
        logs = evaluate() if context.is_chief else None
        return self._server.share(context.fit, "validation %d" % context.epoch, logs)


def _flat(variables):
    values = [np.asarray(variable, np.float64).reshape(-1) for variable in variables]
    return np.concatenate(values) if values else np.zeros(0)
