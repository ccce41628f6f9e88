"""A rank's checkpoints: the chief takes them while a fit goes on, and a later attempt goes on from them.

The cell is run anew in every attempt, from its beginning, and its fits are found again by their number. One that had
returned is called with no epoch left: it returns the history that it had. One that was in work goes on at the epoch, or
the step, of its last checkpoint. All ranks put back the state of the chief, which sends it to them.
"""

import io
import os
import sys
import threading
import time

import keras
import numpy as np

from . import checkpoint, parts, reduce, wire
from .checkpoint import Position
from .monitor import plain
from .training_state import CallbackStates, of_model, put_in_model

#: The least time from one checkpoint to the next, where --checkpoint-every does not say when; and the share of the
#: time that copies may take.
LEAST_SECONDS = 1.0
MOST_OF_THE_TIME = 0.05
#: The largest checkpoint that is streamed to the driver.
MAX_BYTES = 2 << 30

FOLDER = "checkpoints"


class Checkpoints:
    """Those of one rank. `take_up` begins a fit."""

    def __init__(self, context):
        self._context = context
        self._sender = _Sender(context)
        self._rejoins = context.config.get("told") is not None
        self._told = {int(fit): history for fit, history in (context.config.get("told") or {}).items()}
        self._positions = {}
        for each in context.config.get("resume") or ():
            self._positions[each[0]] = Position(*each)

    def take_up(self, arguments):
        """The `Fit` for a call of `fit` with these arguments, by name; its first epoch is moved where it goes on."""
        context, given = self._context, arguments.get("callbacks")
        users = getattr(given, "callbacks", given) or []
        users = list(users) if isinstance(users, (list, tuple)) else [users]
        position = self._positions.get(context.fit)
        first = arguments.get("initial_epoch") or 0
        about, arrays = ({}, {}) if position is None else self._load(position)
        if self._rejoins and not about.get("complete"):
            about = self._as_told(about, first)
        fit = Fit(context, self._sender, CallbackStates(users), about, arrays, first, self._rejoins)
        if about:
            arguments["initial_epoch"] = arguments.get("epochs", 1) if fit.skipped else about["epoch"]
        return fit

    def _as_told(self, about, first):
        """Of a worker that joins again, while the others went on: from the epoch on that has not been reported yet."""
        history = self._told.get(self._context.fit, {})
        position = Position(self._context.fit, first + max(map(len, history.values()), default=0), 0, False)
        return dict({"callbacks": [], "model": "", "steps": None}, **dict(about, history=history, **position._asdict()))

    def _load(self, position):
        """The chief's (about, arrays), on all ranks that meet in collectives; what the driver knows on the others."""
        context, content = self._context, b""
        if context.is_chief:
            with open(os.path.join(context.scratch, FOLDER, position.file), "rb") as file:
                content = file.read()
        elif context.ring is None:
            return dict(position._asdict(), steps=None, history={}, callbacks=[]), {}
        if context.ring is not None:
            size = np.array([len(content)], np.int64)
            context.ring.broadcast(size, reduce.part(context, parts.WEIGHTS))
            buffer = np.frombuffer(content, np.uint8).copy() if context.is_chief else np.empty(int(size[0]), np.uint8)
            context.ring.broadcast(buffer, reduce.part(context, parts.WEIGHTS))
            content = buffer.tobytes()
        return checkpoint.read(io.BytesIO(content))


class Fit:
    """The checkpoints of one call of `fit`. `before` and `after`: callbacks around the runtime's own, after the user's.

    about, arrays: what it goes on from, or nothing; first_epoch: the one that the user wants; rejoins: the others of a
    parameter-server run are somewhere in it.
    """

    def __init__(self, context, sender, callbacks, about, arrays, first_epoch, rejoins):
        self.context, self._sender = context, sender
        self._callbacks, self._about, self._arrays = callbacks, about, arrays
        self._first_epoch, self._rejoins = first_epoch, rejoins
        self._history = {name: list(values) for name, values in about.get("history", {}).items()}
        self._steps = about.get("steps")  # of an epoch, once one is over
        self._due_at = time.monotonic()
        self.before, self.after = _Before(self), _After(self)

    @property
    def reports(self):
        """Whether its events are the run's: not where an attempt before has sent them."""
        return not self.skipped or self._of_another_run

    @property
    def _of_another_run(self):
        return bool(self._about) and self.context.config.get("resumed") and self.context.config["attempt"] == 1

    def report_history(self):
        """The epochs of another run, which are this one's too."""
        if not self._of_another_run or not self.context.is_chief:
            return
        history = self._about["history"]
        for i in range(max(map(len, history.values()), default=0)):
            metrics = plain({name: values[i] for name, values in history.items() if i < len(values)})
            self.context.emit("epoch", fit=self.context.fit, epoch=self._first_epoch + i, metrics=metrics, seconds=0.0)

    @property
    def skipped(self):
        """Whether it had returned in an earlier attempt, and has nothing to do in this one."""
        return bool(self._about.get("complete"))

    def put_back(self, model):
        """Before the first epoch: the state that this attempt goes on from."""
        if not self._about:
            return
        hooks = self.context.hooks
        hooks.build_all(model)
        if self._arrays:
            whose = "the checkpoint of fit %d (%s)" % (self.context.fit + 1, self._about["model"])
            put_in_model(model, hooks, self._arrays, whose)
        self._callbacks.put(self._about["callbacks"], self._arrays)
        if not self.skipped and not self._rejoins:
            epochs = self._about["epoch"] - self._first_epoch
            hooks.forward(max(0, epochs), self._about["steps"], self._about["step"])

    def join(self, model, epoch):
        """The parameter server says which `epoch` the others are in. The chief has to report those before it, too."""
        if self._rejoins and not self.context.is_chief:
            self.context.hooks.begin_at(model, max(self._first_epoch, epoch))

    def put_back_metrics(self, model):
        """In the first epoch, if that had begun: what the metrics had counted, on the chief for all."""
        if self._about.get("step") and self.context.is_chief:
            for i, variable in enumerate(_metric_states(model)):
                variable.assign(self._arrays["metrics/%d" % i])

    def end_epoch(self, model, epoch, logs, last):
        self._steps = self.context.step
        for name, value in (logs or {}).items():
            self._history.setdefault(name, []).append(_number(value))
        if self.context.is_chief and not (last or model.stop_training) and time.monotonic() >= self._due_at:
            self._take(model, Position(self.context.fit, epoch + 1, 0, False), {})

    def end_step(self, model, epoch, step):
        """After step number `step`, from 1, of an epoch, where --checkpoint-every wants one. All ranks call it."""
        context = self.context
        states = [np.array(variable, np.float64) for variable in _metric_states(model)]
        averaged = context.hooks.statistics(model)
        flat = np.concatenate([state.reshape(-1) for state in states] or [np.zeros(0)])
        counted, moments = flat, [np.array(variable, np.float64) / context.size for variable in averaged]
        if context.ring is not None:
            flat = np.concatenate([flat] + [each.reshape(-1) for each in moments])
            reduce.note_stop(context, context.ring.allreduce(flat, reduce.part(context, parts.CHECKPOINT)))
            reduce.assign(averaged, flat[counted.size :])
        if context.is_chief:
            ends = np.cumsum([state.size for state in states])[:-1]
            summed = [part.reshape(state.shape) for part, state in zip(np.split(flat[: counted.size], ends), states)]
            arrays = {"metrics/%d" % i: each for i, each in enumerate(summed)}
            self._take(model, Position(context.fit, epoch, step, False), arrays)

    def end(self, model, history):
        """The fit has returned `history`: complete that by what earlier attempts had, and keep the outcome."""
        if self._rejoins:
            self.context.hooks.begin_at(model, None)
        before = self._about.get("history", {})
        for name, values in before.items():
            history.history[name] = list(values) + list(history.history.get(name, ()))
        count = max(map(len, before.values()), default=0)
        history.epoch[:0] = range(self._first_epoch, self._first_epoch + count)
        if self.context.is_chief and not self.skipped:
            epochs = self._first_epoch + max(map(len, self._history.values()), default=0)
            self._take(model, Position(self.context.fit, epochs, 0, True), {})

    def _take(self, model, position, arrays):
        if self.context.in_ensemble or (self._sender.busy and not position.complete):
            return  # of several models, each would need its own
        began = time.monotonic()
        callbacks, of_callbacks = self._callbacks.take()
        arrays = dict(of_model(model, self.context.hooks), **dict(of_callbacks, **arrays))
        about = dict(
            position._asdict(), steps=self._steps, history=self._history, callbacks=callbacks, model=model.name
        )
        self._sender.send(position, about, arrays)
        now = time.monotonic()
        self._due_at = now + max(LEAST_SECONDS, (now - began) / MOST_OF_THE_TIME)


class _Before(keras.callbacks.Callback):
    """After the user's callbacks, which begin anew, and before those that share out what it puts back."""

    def __init__(self, fit):
        super().__init__()
        self._fit, self._begins = fit, True

    def on_train_begin(self, logs=None):
        self._fit.put_back(self.model)

    def on_epoch_begin(self, epoch, logs=None):
        if self._begins:
            self._fit.put_back_metrics(self.model)
        self._begins = False


class _After(keras.callbacks.Callback):
    """The last, which sees what all others have made of a step and of an epoch."""

    _supports_tf_logs = True

    def __init__(self, fit):
        super().__init__()
        self._fit, self._epoch = fit, 0
        context = fit.context
        together = context.reduces or context.size == 1
        self._every = context.config.get("checkpoint_every")
        if self._every and not (together and context.hooks.begins_in_epochs):
            self._every = None
            if context.is_chief:
                message = "--checkpoint-every is for steps that all workers take together, and for Keras 3: "
                context.emit("notice", level="warning", message=message + "checkpoints are taken after epochs")

    def on_train_begin(self, logs=None):
        self._fit.report_history()

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        self._taken = None

    def on_train_batch_begin(self, batch, logs=None):
        if self._taken is None:
            self._taken = batch

    def on_train_batch_end(self, batch, logs=None):
        step = batch + 1
        steps = self.params.get("steps")
        if self._every and step // self._every > self._taken // self._every and step != steps:
            self._taken = step
            self._fit.end_step(self.model, self._epoch, step)

    def on_epoch_end(self, epoch, logs=None):
        self._fit.end_epoch(self.model, epoch, logs, last=epoch + 1 == self.params.get("epochs"))


class _Sender:
    """Streams checkpoints to the driver, one at a time and beside the training."""

    def __init__(self, context):
        self._context = context
        self._thread, self._refused = None, False

    @property
    def busy(self):
        return self._thread is not None and self._thread.is_alive()

    def send(self, position, about, arrays):
        """Waits for the one before, if that is still on its way."""
        size = sum(array.nbytes for array in arrays.values())
        if size > MAX_BYTES:
            if not self._refused:
                self._refused = True
                message = (
                    "no checkpoints: the model's state takes %.1f GB, and more than %d GB are not sent to the driver"
                )
                self._context.emit("notice", level="warning", message=message % (size / 2**30, MAX_BYTES >> 30))
            return
        if self._thread is not None:
            self._thread.join()
        self._thread = threading.Thread(target=self._send, args=(position, about, arrays), daemon=True)
        self._thread.start()

    def _send(self, position, about, arrays):
        path = os.path.join(self._context.scratch, "leaving-" + position.file)
        try:
            checkpoint.write(path, about, arrays)
            self._context.send_checkpoint(path, position)
            os.unlink(path)
        except wire.ConnectionLost:
            pass  # the driver is gone
        except OSError as error:
            print("a checkpoint could not be written: %s" % error, file=sys.stderr)


def _metric_states(model):
    return [variable for metric in model.metrics for variable in metric.variables]


def _number(value):
    """A value of Keras' logs as JSON has it: an exact double, or a list."""
    return np.asarray(value).tolist()
