"""Training against a parameter server: a worker trains on its own batches and meets the centre once a window.

Keras' own optimizer makes the local steps. The update rule says what is committed and what comes back
(parameter_server/update_rules.py). Where ranks come and go, the server says at an epoch's end who shares out the next.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Iterator, Sequence

import keras
import numpy as np

from ..gradients import reduce
from ..keras_types import Model, Variable
from ..parameter_server import update_rules
from ..parameter_server.client import NonFinite
from ..parameter_server.exchange import Exchanger
from ..parameter_server.report import CommitReport
from ..parameter_server.rule_spec import RATE, Rule
from ..rank.rank import Rank
from ..stopping import NAN_ADVICE, NotANumber
from . import learning_rate, optimizers, stability
from .fit_in_progress import FitInProgress
from .keras_access import KerasAccess
from .placement import Placement

#: Of a fit, in the numbers of iterations over --data.
MOST_EPOCHS = 1 << 20


class ParameterSync(keras.callbacks.Callback):
    """Added to every fit of a `ps` run. The hooks of Keras call `end_epoch` and `validate`."""

    def __init__(self, rank: Rank, fit: FitInProgress, access: KerasAccess, placement: Placement) -> None:
        super().__init__()
        assert rank.server is not None
        self._rank, self._config, self._progress = rank, rank.config, rank.progress
        self._server, self._fit, self._access, self._placement = rank.server, fit, access, placement
        self._begun = False
        self._synced_step = 0  # batches of this epoch that were handed over

    def on_train_begin(self, logs: Any = None) -> None:
        checkpoints = self._fit.checkpoints
        assert checkpoints is not None
        self._count_workers(checkpoints.steps_of_all)
        if self.model.built and not checkpoints.skipped:
            self._begin()
            with self._alone():
                checkpoints.join(self.model, min(self._server.epoch, self.params["epochs"]))
            self._share_out()

    def _count_workers(self, steps: int | None = None) -> None:
        """Have rule, window and schedule be those for the workers that there are.

        steps: as `count_steps_of_all` has it.
        """
        self._size = self._rank.peers.place[1]
        self._window = self._config.spec.window or self._size
        learning_rate.count_steps_of_all(self.model, self._size, steps)
        self._rule = self._make_rule()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While it lasts, this rank has the batches of all, so that it need not read many to find one."""
        peers, sharers = self._rank.peers, self._rank.peers.sharers
        if sharers is not None:
            peers.sharers = [self._config.rank]
            self._placement.update()
        try:
            yield
        finally:
            peers.sharers = sharers
            if sharers is not None:
                self._placement.update()

    def _share_out(self) -> None:
        """Share out the next epoch among the ranks that there are, where they come and go."""
        peers = self._rank.peers
        if peers.sharers is None or not self._fit.shares_epochs:
            return
        had_a_share = peers.has_share
        peers.sharers = self._server.ranks
        self._placement.update()
        if peers.size != self._size or not had_a_share:
            self._count_workers(None if had_a_share else self._server.steps)
            self._exchanger.follow(self._rule, self._window)

    def _begin(self) -> None:
        """Take the chief's weights as the first centre."""
        fit = self._progress.fit
        self._weights = list(self.model.trainable_weights)
        rate = optimizers.learning_rate(self.model.optimizer)
        initial = reduce.flat(self._weights)
        chief_weights = initial if self._config.is_chief else None
        centre, version = self._server.begin(fit, chief_weights, initial.dtype, initial.size, rate)
        self._begun = True
        self._report = CommitReport()
        self._exchanger = Exchanger(self._rule, self._server, fit, self._window)
        self._adopt(centre, version)

    def _make_rule(self) -> Rule:
        """Take what the rule derives from the optimizer, and say before training what will probably diverge."""
        config, optimizer, spec = self._config, self.model.optimizer, self._config.rule
        assert spec is not None
        rate = optimizers.learning_rate(optimizer)
        rule = update_rules.make(spec, self._size, rate)
        if RATE.name not in spec.settings:
            rule = stability.steady(rule, rate, optimizers.momentum(optimizer), self._window)
        if rule.look_ahead:
            optimizers.require_look_ahead(optimizer, rule.name)
        learning_rate.follow(self._rank, rule, self.model)
        warning = stability.warning(rule, rate, optimizers.momentum(optimizer), self._window, self._size)
        if warning and config.is_chief:
            self._rank.reporter.notice("warning", warning)
        return rule

    def _adopt(self, centre: np.ndarray, version: int) -> None:
        """Continue from a centre that all workers have."""
        self._exchanger.start(centre, version)
        reduce.assign(self._weights, centre)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._synced_step = 0
        epochs, progress = self._rank.data_epochs, self._progress
        if epochs is not None and self._config.whole_data:  # one order for all, whatever each has read by itself
            epochs.next = progress.fit * MOST_EPOCHS + epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._begun:  # a model that was built by its first batch
            self._begin()
            self._synced_step = batch + 1
            return
        trained = batch + 1 - self._synced_step
        is_window_full = trained >= self._window
        if self._exchanger.answer_arrived or (is_window_full and self._exchanger.in_flight):
            self._collect(trained)
        if is_window_full:
            self._send(trained)
            self._synced_step = batch + 1

    def on_train_end(self, logs: Any = None) -> None:
        learning_rate.scale(self.model.optimizer, 1.0)
        if self._begun:
            self._exchanger.close()

    def _send(self, batches: int, ends_epoch: bool = False) -> None:
        """Commit a window of `batches` batches, while the next is trained."""
        began = time.monotonic()
        local = reduce.flat(self._weights)
        if self._rule.look_ahead:
            local -= optimizers.look_ahead(self.model.optimizer, self._weights)
        self._exchanger.send(local, batches, ends_epoch)
        self._rank.peers.timings.waited += time.monotonic() - began

    def _collect(self, trained: int) -> None:
        """Take the answer to the last commit, after which `trained` batches were trained."""
        began = time.monotonic()
        try:
            exchanged = self._exchanger.collect(trained)
        except NonFinite as error:
            place_in_run = " at step %d of epoch %d; " % (self._progress.step + 1, self._progress.epoch + 1)
            raise NotANumber(error.rank, str(error) + place_in_run + NAN_ADVICE) from None
        reduce.add(self._weights, exchanged.shift)
        self._rank.peers.timings.waited += time.monotonic() - began
        self._report.add(exchanged.staleness)
        if self._report.due:
            self._send_report()

    def _send_report(self) -> None:
        fields = self._report.take()
        if fields:
            self._rank.reporter.emit("commits", **fields)

    def end_epoch(self, model: Model) -> None:
        """Commit the last, partial window, wait for the other workers, and continue from the centre.

        Metrics become those of all workers, BatchNormalization's statistics the mean over workers.
        """
        progress, stop = self._progress, self._rank.stop
        if not self._begun:
            self._begin()
        trained = progress.step - self._synced_step
        if self._exchanger.in_flight:
            self._collect(trained)
        if trained:
            self._send(trained, ends_epoch=True)
            self._collect(0)
        self._send_report()
        states = [variable for metric in model.metrics for variable in metric.variables]
        averaged = self._access.statistics(model) + optimizers.moving_averages(model.optimizer)
        sums, means, centre, version, agreed = self._server.epoch_end(
            *(progress.fit, progress.epoch, _flat(states), _flat(averaged)),
            stop=stop.requested or stop.asked,
            trained=not self._fit.shares_epochs or self._rank.peers.has_share,
            steps=learning_rate.steps_of_all(model.optimizer),
        )
        stop.agreed = stop.agreed or agreed
        reduce.assign(states, sums)
        reduce.assign(averaged, means)
        self._adopt(centre, version)
        self._share_out()

    def validate(self, evaluate: Callable[[], Any]) -> Any:
        """The chief's validation of the centre, for all workers."""
        logs = evaluate() if self._config.is_chief else None
        return self._server.broadcast(self._progress.fit, "validation %d" % self._progress.epoch, logs)


def _flat(variables: Sequence[Variable]) -> np.ndarray:
    values = [np.asarray(variable, np.float64).reshape(-1) for variable in variables]
    return np.concatenate(values) if values else np.zeros(0)
