"""The callback that a rank adds to every fit: reports steps and epochs, and agrees with the others on stopping."""

from __future__ import annotations

import time
from typing import Any, Sequence

import keras

from ..gradients import reduce
from ..rank.rank import Rank
from ..stopping import NAN_ADVICE, NotANumber
from .fit_in_progress import FitInProgress
from .keras_access import KerasAccess
from .logs import finite_numbers
from .step_buckets import Rows, StepBuckets

_STOPS_APART = (
    "a callback has stopped a fit on worker %d and not on worker %d, and it ends on all: the callback looks at what "
    "each worker has for itself, such as a clock or random numbers; ddl.allreduce makes one value of them"
)
_LEAVES_ALONE = (
    "a callback has stopped the fit on worker %d in epoch %d of %d: with --strategy ps each worker stops by itself, "
    "and the others train on"
)


class FitReporter(keras.callbacks.Callback):
    """Sends the events "fit", "steps", "epoch" and "fit_end". It comes after the callbacks of the cell."""

    _supports_tf_logs = True  # spares Keras 2 a conversion of the logs after every step

    def __init__(self, rank: Rank, fit: FitInProgress, rows: Rows, access: KerasAccess | None = None) -> None:
        """access: to the parts of a model that this library trains on several ranks."""
        super().__init__()
        self._rank, self._config, self._progress = rank, rank.config, rank.progress
        self._reporter, self._buckets = rank.reporter, StepBuckets(rank, rows)
        self._fit, self._access = fit, access
        self._aligned = fit.checkpoints is not None and fit.checkpoints.joins
        self._of_chief: dict[str, Any] | None = None  # the epoch that the chief is to report

    def on_train_begin(self, logs: Any = None) -> None:
        model = self.model
        self._align()
        if not self._reports:
            return
        parameters = int(model.count_params()) if model.built else None
        steps = self.params.get("steps")
        self._reporter.emit(
            "fit",
            fit=self._progress.fit,
            model=model.name,
            epochs=min(int(self.params.get("epochs") or 0), self._config.spec.epochs or 2**31),
            steps=None if steps is None else int(steps),
            parameters=parameters,
            models=self._config.models,
            **({"regroups": True} if self._fit.membership is not None else {}),
        )

    @property
    def _reports(self) -> bool:
        """Whether the begin and the end of this fit are the run's: members of an ensemble train at their own pace."""
        return self._fit.reports and (self._config.is_chief or not self._config.in_ensemble)

    def _align(self) -> None:
        """Equal weights on all ranks, as soon as the model has weights."""
        if self._aligned or not self.model.built or not self._config.reduces_gradients or self._access is None:
            return
        self._aligned = True
        reduce.broadcast_weights(self._rank.peers, self._access.weights(self.model))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._progress.epoch, self._progress.step = epoch, 0
        self._epoch_began = time.monotonic()
        self._buckets.open(0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._progress.step = batch
        self._buckets.begin_step()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        due = self._buckets.end_step()
        self._progress.step = batch + 1
        self._take_over()
        self._align()
        if due:
            self._flush(logs)

    def _flush(self, logs: Any) -> None:
        if self._buckets.count:
            metrics = finite_numbers(logs)
            self._refuse_nan(metrics)
            self._buckets.flush(metrics)

    def _refuse_nan(self, metrics: dict[str, float | None]) -> None:
        if metrics.get("loss", 0.0) is None and self._fit.checks_finite:
            rank, progress = self._config.rank, self._progress
            message = "the loss of rank %d is NaN or infinite at step %d of epoch %d; %s"
            raise NotANumber(rank, message % (rank, progress.step, progress.epoch + 1, NAN_ADVICE))

    def on_test_begin(self, logs: Any = None) -> None:
        self._flush(logs={})  # the time of a validation is not that of a step

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._progress.evaluated += 1
        if self._rank.stop.asked:
            self.model.stop_evaluating = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        metrics, fit = finite_numbers(logs), self._progress.fit
        self._flush(logs={})
        seconds = round(time.monotonic() - self._epoch_began, 6)
        self._of_chief = {"fit": fit, "epoch": epoch, "metrics": metrics, "seconds": seconds}
        self._take_over()
        if self._config.in_ensemble and not self._rank.peers.is_chief:
            self._reporter.emit("member", fit=fit, epoch=epoch, metrics=metrics)
        self._refuse_nan(metrics)
        self._check_target(metrics)
        if epoch + 1 == self._config.spec.epochs:
            self.model.stop_training = True  # on all ranks at once
        if self._rank.peers.ring is not None:
            self._say_who_stops(reduce.agree_on_stop(self._rank.peers))
            self._take_over()
            if self._rank.stop.agreed:
                self.model.stop_training = True

    def _take_over(self) -> None:
        """The chief reports its epoch; a rank that becomes the chief later, too, as the one before may have died first.

        The driver takes an epoch once.
        """
        if self._of_chief is not None and self._rank.peers.is_chief:
            self._reporter.emit("epoch", **self._of_chief)
            self._of_chief = None

    def _say_who_stops(self, stopped: Sequence[bool]) -> None:
        """stopped: whether callbacks have stopped the fit, by rank."""
        if len(set(stopped)) > 1:
            self._reporter.notice_once("info", _STOPS_APART % (stopped.index(True), stopped.index(False)))

    def _say_who_leaves(self) -> None:
        epoch, epochs, limit = self._progress.epoch + 1, self.params.get("epochs") or 0, self._config.spec.epochs
        is_stopped = self.model.stop_training and not self._rank.stop.asked and self._config.target is None
        if self._rank.server is not None and is_stopped and epoch < min(epochs, limit or epochs):
            self._reporter.notice("warning", _LEAVES_ALONE % (self._config.rank, epoch, epochs))

    def _check_target(self, metrics: dict[str, float | None]) -> None:
        target = self._config.target
        if target is None:
            return
        if target.metric not in metrics:
            message = "--target: the history has no %s after this epoch, but %s"
            self._reporter.notice_once("warning", message % (target.metric, ", ".join(metrics) or "nothing"))
        elif target.is_reached(metrics[target.metric]):
            self._rank.stop.requested = True  # for all ranks, should their metrics differ
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        self._say_who_leaves()
        if self._reports:
            self._reporter.emit("fit_end", fit=self._progress.fit, stopped=bool(self.model.stop_training))
