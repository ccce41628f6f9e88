"""A rank's checkpoints: the chief takes them during a fit, and a later attempt continues from them.

Every attempt runs the cell again, from its beginning, and finds its fits by their number. A fit that had returned is
called with no epoch left: it returns the history that it had. A fit that was in progress continues at the epoch, or the
step, of its last checkpoint. All ranks restore the state of the chief, which sends it to them.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from typing import Any, Mapping

import keras
import numpy as np

from ..checkpoints import checkpoint
from ..checkpoints.checkpoint import Position
from ..collectives import announcement
from ..gradients import reduce
from ..gradients.metric_sums import MetricSums
from ..keras_types import Model, Variable, inner_optimizer
from ..rank.config import RankConfig
from ..rank.rank import Rank
from ..rank.reporter import Reporter
from ..transport import wire
from . import optimizers
from .keras_access import KerasAccess
from .logs import finite_numbers
from .training_state import Arrays, CallbackStates, of_model, put_in_model

#: Where --checkpoint-every is not given: the least time from one checkpoint to the next, and the largest share of the
#: time that copies may take.
LEAST_SECONDS = 1.0
MOST_OF_THE_TIME = 0.05
#: The largest checkpoint that is streamed to the driver.
MAX_BYTES = 2 << 30

FOLDER = "checkpoints"

#: What is known of a checkpoint beside its arrays, as JSON: the fields of its `Position`, and "steps" of an epoch,
#: "history", "callbacks", "model" (its name), "rates" (the learning rate that the fit began with, and that of now).
About = Mapping[str, Any]


class Checkpoints:
    """Those of one rank."""

    def __init__(self, rank: Rank, access: KerasAccess, metric_sums: MetricSums) -> None:
        self._rank, self._config, self._access, self._metric_sums = rank, rank.config, access, metric_sums
        self._sender = _Sender(self._config, rank.reporter)
        self._positions = {position.fit: position for position in self._config.resume}

    def begin_fit(self, arguments: dict[str, Any]) -> FitCheckpoints:
        """The checkpoints of a call of `fit` with these arguments, by name; its first epoch is moved to where it
        continues.
        """
        given = arguments.get("callbacks")
        users = getattr(given, "callbacks", given) or []
        users = list(users) if isinstance(users, (list, tuple)) else [users]
        position = self._positions.get(self._rank.progress.fit)
        first = arguments.get("initial_epoch") or 0
        about: About = {}
        arrays: Arrays = {}
        if position is not None:
            about, arrays = self._load(position)
        rejoins = self._config.reported is not None
        if rejoins and not about.get("complete"):
            about = self._as_reported(about, first)
        states = CallbackStates(users)
        fit = FitCheckpoints(self._rank, self._access, self._sender, self._metric_sums, states, about, arrays, first)
        if about:
            arguments["initial_epoch"] = arguments.get("epochs", 1) if fit.skipped else about["epoch"]
        return fit

    def _as_reported(self, about: About, first: int) -> About:
        """For a worker that rejoins while the others continue: from the first epoch that has not been reported."""
        fit = self._rank.progress.fit
        history = (self._config.reported or {}).get(fit, {})
        position = Position(fit, first + max(map(len, history.values()), default=0), 0, False)
        return {"callbacks": [], "model": "", "steps": None, **about, "history": history, **position._asdict()}

    def _load(self, position: Position) -> tuple[About, Arrays]:
        """The chief's (about, arrays), on all ranks that meet in collectives; what the driver knows on the others."""
        config, peers, content = self._config, self._rank.peers, b""
        if config.is_chief:
            with open(os.path.join(config.scratch, FOLDER, position.file), "rb") as file:
                content = file.read()
        elif peers.ring is None:
            return dict(position._asdict(), steps=None, history={}, callbacks=[]), {}
        if peers.ring is not None:
            size = np.array([len(content)], np.int64)
            peers.ring.broadcast(size, peers.announcement(announcement.WEIGHTS))
            buffer = np.frombuffer(content, np.uint8).copy() if config.is_chief else np.empty(int(size[0]), np.uint8)
            peers.ring.broadcast(buffer, peers.announcement(announcement.WEIGHTS))
            content = buffer.tobytes()
        about, arrays = checkpoint.read(io.BytesIO(content))
        return about, arrays


class FitCheckpoints:
    """Checkpoints of one call of `fit`. `before` and `after`: callbacks around the runtime's own, after the user's."""

    def __init__(
        self,
        rank: Rank,
        access: KerasAccess,
        sender: _Sender,
        metric_sums: MetricSums,
        callbacks: CallbackStates,
        about: About,
        arrays: Arrays,
        first_epoch: int,
    ) -> None:
        """about, arrays: what it continues from, or nothing; first_epoch: the one that the user wants."""
        self._rank, self._config, self._access, self._sender = rank, rank.config, access, sender
        self._metric_sums, self._callbacks, self._about, self._arrays = metric_sums, callbacks, about, arrays
        self._first_epoch = first_epoch
        self._rejoins = rank.config.reported is not None  # the others of a parameter-server run are somewhere in it
        self._history = {name: list(values) for name, values in about.get("history", {}).items()}
        self._steps = about.get("steps")  # of an epoch, once one is over
        self._first_rate: float | None = None
        self._due_at = time.monotonic()
        self.before = _Before(self)
        self.after = _After(self, self._checked_every())

    @property
    def reports(self) -> bool:
        """Whether its events are the run's: not where an earlier attempt has sent them."""
        return not self.skipped or self._of_another_run

    @property
    def _of_another_run(self) -> bool:
        return bool(self._about) and bool(self._config.spec.resume) and self._config.attempt == 1

    def _checked_every(self) -> int | None:
        """--checkpoint-every, where it can be had; else a notice says so."""
        config = self._config
        together = config.reduces_gradients or config.size == 1
        if not config.spec.checkpoint_every or (together and self._access.resumes_within_epochs):
            return config.spec.checkpoint_every
        if config.is_chief:
            message = "--checkpoint-every is for steps that all workers take together, and for Keras 3: "
            self._rank.reporter.notice("warning", message + "checkpoints are taken after epochs")
        return None

    def report_history(self) -> None:
        """The epochs of another run, which are this one's too."""
        if not self._of_another_run or not self._config.is_chief:
            return
        history, fit = self._about["history"], self._rank.progress.fit
        if self.skipped:
            message = "fit %d had ended in the resumed run: its history and weights are taken, and nothing is trained"
            self._rank.reporter.notice("info", message % (fit + 1))
        for i in range(max(map(len, history.values()), default=0)):
            metrics = finite_numbers({name: values[i] for name, values in history.items() if i < len(values)})
            epoch = self._first_epoch + i
            self._rank.reporter.emit("epoch", fit=fit, epoch=epoch, metrics=metrics, seconds=0.0)

    @property
    def skipped(self) -> bool:
        """Whether it had returned in an earlier attempt, and has nothing to do in this one."""
        return bool(self._about.get("complete"))

    def restore(self, model: Model) -> None:
        """Before the first epoch: the state that this attempt continues from."""
        self._first_rate = optimizers.fixed_rate(model.optimizer)
        if not self._about:
            return
        self._access.build_all(model)
        if self._arrays:
            whose = "the checkpoint of fit %d (%s)" % (self._rank.progress.fit + 1, self._about["model"])
            put_in_model(model, self._access, self._arrays, whose)
            self._restore_rate(model)
        self._callbacks.put(self._about["callbacks"], self._arrays)
        if not self.skipped and not self._rejoins:
            epochs = self._about["epoch"] - self._first_epoch
            self._access.fast_forward(max(0, epochs), self._about["steps"], self._about["step"])

    def _restore_rate(self, model: Model) -> None:
        """The rate as it was, which callbacks may have changed; but the cell's, if that is another one than before."""
        given, (first, last) = self._first_rate, self._about.get("rates") or (None, None)
        if given is None or first is None or last is None:
            return
        inner_optimizer(model.optimizer).learning_rate = last if given == first else given
        if given != first and self._config.is_chief:
            message = "it continues at the cell's learning rate, %.6g: the resumed run had begun with %.6g"
            self._rank.reporter.notice("info", message % (given, first))

    def join(self, model: Model, epoch: int) -> None:
        """The parameter server says which `epoch` the others are in. The chief also reports those before it."""
        if self._rejoins and not self._config.is_chief:
            self._access.begin_at(model, max(self._first_epoch, epoch))

    def restore_metrics(self, model: Model) -> None:
        """In the first epoch, if that had begun: what the metrics had counted, on the chief for all."""
        if self._about.get("step") and self._config.is_chief:
            for i, variable in enumerate(_metric_states(model)):
                variable.assign(self._arrays["metrics/%d" % i])

    def end_epoch(self, model: Model, epoch: int, logs: Any, last: bool) -> None:
        self._steps = self._rank.progress.step
        for name, value in (logs or {}).items():
            self._history.setdefault(name, []).append(_number(value))
        if self._config.is_chief and not (last or model.stop_training) and time.monotonic() >= self._due_at:
            self._take(model, Position(self._rank.progress.fit, epoch + 1, 0, False), {})

    def end_step(self, model: Model, epoch: int, step: int) -> None:
        """After step number `step`, from 1, of an epoch, where --checkpoint-every wants one. All ranks call it."""
        peers = self._rank.peers
        states = self._metric_sums.parts_of_sum(_metric_states(model))
        averaged = self._access.statistics(model)
        flat = np.concatenate([state.reshape(-1) for state in states] or [np.zeros(0)])
        counted = flat.size
        if peers.ring is not None:
            means = [np.array(variable, np.float64).reshape(-1) / self._config.size for variable in averaged]
            flat = np.concatenate([flat, *means])
            peers.allreduce(flat, announcement.CHECKPOINT)
            reduce.assign(averaged, flat[counted:])
        if self._config.is_chief:
            ends = np.cumsum([state.size for state in states])[:-1]
            summed = [part.reshape(state.shape) for part, state in zip(np.split(flat[:counted], ends), states)]
            arrays = {"metrics/%d" % i: each for i, each in enumerate(summed)}
            self._take(model, Position(self._rank.progress.fit, epoch, step, False), arrays)

    def end(self, model: Model, history: Any) -> None:
        """The fit has returned `history`: complete that by what earlier attempts had, and keep the result."""
        if self._rejoins:
            self._access.begin_at(model, None)
        before = self._about.get("history", {})
        for name, values in before.items():
            history.history[name] = list(values) + list(history.history.get(name, ()))
        count = max(map(len, before.values()), default=0)
        history.epoch[:0] = range(self._first_epoch, self._first_epoch + count)
        if self._config.is_chief and not self.skipped:
            epochs = self._first_epoch + max(map(len, self._history.values()), default=0)
            self._take(model, Position(self._rank.progress.fit, epochs, 0, True), {})

    def _take(self, model: Model, position: Position, metrics: dict[str, np.ndarray]) -> None:
        if self._config.in_ensemble or (self._sender.busy and not position.complete):
            return  # of several models, each would need its own
        began = time.monotonic()
        callbacks, of_callbacks = self._callbacks.take()
        arrays = {**of_model(model, self._access), **of_callbacks, **metrics}
        rates = self._first_rate, optimizers.fixed_rate(model.optimizer)
        about = dict(
            position._asdict(),
            steps=self._steps,
            history=self._history,
            callbacks=callbacks,
            model=model.name,
            rates=rates,
        )
        self._sender.send(position, about, arrays)
        now = time.monotonic()
        self._due_at = now + max(LEAST_SECONDS, (now - began) / MOST_OF_THE_TIME)


class _Before(keras.callbacks.Callback):
    """After the user's callbacks, which begin anew, and before those that share out what it restores."""

    def __init__(self, fit: FitCheckpoints) -> None:
        super().__init__()
        self._fit, self._begins = fit, True

    def on_train_begin(self, logs: Any = None) -> None:
        self._fit.restore(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._begins:
            self._fit.restore_metrics(self.model)
        self._begins = False


class _After(keras.callbacks.Callback):
    """The last, which sees what all others have made of a step and of an epoch. every: steps between checkpoints."""

    _supports_tf_logs = True

    def __init__(self, fit: FitCheckpoints, every: int | None) -> None:
        super().__init__()
        self._fit, self._every, self._epoch = fit, every, 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._fit.report_history()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        self._taken: int | None = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._taken is None:
            self._taken = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._every:
            return
        step = batch + 1
        if step // self._every > (self._taken or 0) // self._every and step != self.params.get("steps"):
            self._taken = step
            self._fit.end_step(self.model, self._epoch, step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._fit.end_epoch(self.model, epoch, logs, last=epoch + 1 == self.params.get("epochs"))


class _Sender:
    """Streams checkpoints to the driver, one at a time, while training continues."""

    def __init__(self, config: RankConfig, reporter: Reporter) -> None:
        self._config, self._reporter = config, reporter
        self._thread: threading.Thread | None = None
        self._refused = False

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def send(self, position: Position, about: About, arrays: Arrays) -> None:
        """Waits for the one before, if that is still being sent."""
        size = sum(array.nbytes for array in arrays.values())
        if size > MAX_BYTES:
            if not self._refused:
                self._refused = True
                message = (
                    "no checkpoints: the model's state takes %.1f GB, and more than %d GB are not sent to the driver"
                )
                self._reporter.notice("warning", message % (size / 2**30, MAX_BYTES >> 30))
            return
        if self._thread is not None:
            self._thread.join()
        self._thread = threading.Thread(target=self._send, args=(position, about, arrays), daemon=True)
        self._thread.start()

    def _send(self, position: Position, about: About, arrays: Arrays) -> None:
        path = os.path.join(self._config.scratch, "leaving-" + position.file)
        try:
            checkpoint.write(path, about, arrays)
            self._reporter.send_checkpoint(path, position)
            os.unlink(path)
        except wire.ConnectionLost:
            pass  # the driver is gone
        except OSError as error:
            print("a checkpoint could not be written: %s" % error, file=sys.stderr)


def _metric_states(model: Model) -> list[Variable]:
    return [variable for metric in model.metrics for variable in metric.variables]


def _number(value: Any) -> Any:
    """A value of Keras' logs as JSON has it: an exact double, or a list."""
    return np.asarray(value).tolist()
