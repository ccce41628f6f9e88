"""The callback that a rank adds to every fit: reports steps and epochs, and agrees with the others on stopping."""

import time

import keras
import numpy as np

from . import reduce
from .outcome import NAN_ADVICE, NotANumber

FLUSH_SECONDS = 0.25


class Monitor(keras.callbacks.Callback):
    """Sends the events "fit", "steps", "epoch" and "fit_end". The last callback of its fit."""

    _supports_tf_logs = True  # spares Keras 2 a conversion of the logs after every step

    def __init__(self, context):
        super().__init__()
        self._context = context
        self._aligned = False

    def on_train_begin(self, logs=None):
        context, model = self._context, self.model
        self._align()
        if not self._reports:
            return
        parameters = int(model.count_params()) if model.built else None
        steps = self.params.get("steps")
        context.emit(
            "fit",
            fit=context.fit,
            model=model.name,
            epochs=int(self.params.get("epochs") or 0),
            steps=None if steps is None else int(steps),
            parameters=parameters,
        )

    @property
    def _reports(self):
        """Whether the begin and the end of this fit are the run's: members of an ensemble go at a pace of their own."""
        return self._context.taken_up.reports and (self._context.is_chief or not self._context.in_ensemble)

    def _align(self):
        """Equal weights and different noise on all ranks, as soon as the model has weights."""
        if self._aligned or not self.model.built or self._context.size == 1:
            return
        self._aligned = True
        if self._context.reduces:
            reduce.broadcast_weights(self._context, self._context.hooks.weights(self.model))
        self._context.hooks.differ_in_noise(self.model)

    def on_epoch_begin(self, epoch, logs=None):
        self._context.epoch, self._context.step = epoch, 0
        self._epoch_began = time.monotonic()
        self._open(0)

    def _open(self, step):
        """Begin a bucket at `step`."""
        self._first = step
        self._began = time.monotonic()
        self._stepping = self._waited = self._copied = self._wired = 0.0
        self._rows = self._context.rows()

    def on_train_batch_begin(self, batch, logs=None):
        self._context.step = batch
        self._step_began = time.monotonic()
        self._context.waited = self._context.copied = self._context.wired = 0.0

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        self._stepping += now - self._step_began
        self._waited += self._context.waited
        self._copied += self._context.copied
        self._wired += self._context.wired
        self._context.step = batch + 1
        self._align()
        if now - self._began >= FLUSH_SECONDS:
            self._flush(logs)

    def _flush(self, logs):
        context, now = self._context, time.monotonic()
        count = context.step - self._first
        if not count:
            return
        metrics = plain(logs)
        self._refuse_nan(metrics)
        context.emit(
            "steps",
            fit=context.fit,
            epoch=context.epoch,
            step=self._first,
            count=count,
            rows=context.rows() - self._rows,
            seconds=round(now - self._began, 6),
            compute=round(max(0.0, self._stepping - self._waited), 6),
            wait=round(self._waited, 6),
            copy=round(self._copied, 6),
            wire=round(self._wired, 6),
            metrics=metrics if context.is_chief or not context.reduces else {},
        )
        self._open(context.step)

    def _refuse_nan(self, metrics):
        context = self._context
        loss = metrics.get("loss", 0.0)
        if loss is None and context.checks_finite:
            where = (context.rank, context.step, context.epoch + 1)
            message = "the loss of rank %d is NaN or infinite at step %d of epoch %d; " % where
            raise NotANumber(context.rank, message + NAN_ADVICE)

    def on_test_begin(self, logs=None):
        self._flush(logs={})  # the time of a validation is not that of a step

    def on_test_batch_end(self, batch, logs=None):
        if self._context.stop_asked:
            self.model.stop_evaluating = True

    def on_epoch_end(self, epoch, logs=None):
        context = self._context
        metrics = plain(logs)
        self._flush(logs={})
        if context.is_chief:
            seconds = time.monotonic() - self._epoch_began
            context.emit("epoch", fit=context.fit, epoch=epoch, metrics=metrics, seconds=round(seconds, 6))
        elif context.in_ensemble:
            context.emit("member", fit=context.fit, epoch=epoch, metrics=metrics)
        self._refuse_nan(metrics)
        if context.ring is not None:
            reduce.agree_on_stop(context)

    def on_train_end(self, logs=None):
        if self._reports:
            self._context.emit("fit_end", fit=self._context.fit, stopped=bool(self.model.stop_training))


def plain(logs):
    """Keras' logs as JSON numbers; what is not finite is None."""
    numbers = {}
    for name, value in (logs or {}).items():
        try:
            number = float(np.asarray(value))
        except (TypeError, ValueError):
            continue
        numbers[name] = number if np.isfinite(number) else None
    return numbers
