"""A rank's checkpoints: the chief takes them during a fit, and a later attempt continues from them.

Every attempt runs the cell again, from its beginning, and finds its fits by their number. A fit that had returned is
called with no epoch left: it returns the history that it had. A fit that was in progress continues at the epoch, or the
step, of its last checkpoint. All ranks restore the state of the chief, which sends it to them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Mapping, Sequence

import keras
import numpy as np

from ..checkpoints import checkpoint
from ..checkpoints.checkpoint import Position
from ..collectives import announcement
from ..collectives.collective import SingleRank
from ..gradients import reduce
from ..gradients.metric_sums import MetricSums
from ..keras_types import Model, Variable, array_of, inner_optimizer
from ..rank.config import RankConfig
from ..rank.rank import Rank
from ..rank.regrouping import Regrouping, TooLate
from ..rank.reporter import Reporter
from ..transport import wire
from . import learning_rate, membership, optimizers
from .keras_access import KerasAccess
from .logs import finite_numbers
from .training_state import Arrays, CallbackStates, of_model, put_in_model

#: Where --checkpoint-every is not given: the least time from one checkpoint to the next, and the largest share of the
#: time that copies may take.
LEAST_SECONDS = 1.0
MOST_OF_THE_TIME = 0.05
#: The largest checkpoint that is streamed to the driver.
MAX_BYTES = 2 << 30
#: A larger one is written while the training waits; of others a copy is, in a thread.
MOST_COPIED_BYTES = 64 << 20
#: Of a checkpoint that the chief sends to the other ranks, what is in memory at once.
BLOCK_BYTES = 16 << 20

FOLDER = "checkpoints"
#: Before the number of a metric's state, in a checkpoint's names.
_METRICS = "metrics/"

_NO_BEST_FILE = (
    "%s: the checkpoint does not have this file of the best epoch (one file, and with the model's state at most 2 GB): "
    "from here on it gets the best epoch of this attempt alone"
)

_NO_CHECKPOINT = "the others are in a later fit, and no checkpoint tells how fit %d has ended: it has more than 2 GB"

#: What is known of a checkpoint beside its arrays, as JSON: the fields of its `Position`, and "steps" of an epoch,
#: "history", "callbacks", "model" (its name), "rates" (the learning rate that the fit began with, and that of now),
#: "steps_of_all" (that all workers have made together).
Metadata = Mapping[str, Any]


class Checkpoints:
    """Those of one rank: what all its fits share."""

    def __init__(self, rank: Rank, access: KerasAccess, metric_sums: MetricSums) -> None:
        self.rank, self.access, self.metric_sums = rank, access, metric_sums
        self._config, self.sender = rank.config, _Sender(rank.config, rank.reporter)
        self._positions = {position.fit: position for position in self._config.resume}

    def begin_fit(self, arguments: dict[str, Any]) -> FitCheckpoints:
        """The checkpoints of a call of `fit` with these arguments, by name; its first epoch is moved to where it
        continues.
        """
        argument = arguments.get("callbacks")
        users = getattr(argument, "callbacks", argument) or []
        users = list(users) if isinstance(users, (list, tuple)) else [users]
        position = self._positions.get(self.rank.progress.fit)
        first_epoch = arguments.get("initial_epoch") or 0
        metadata: Metadata = {}
        arrays: Arrays = {}
        regrouping = self.rank.peers.regrouping
        if regrouping is not None and self.joins:
            metadata, arrays = self._join(regrouping)
        elif position is not None:
            metadata, arrays = self._load(position)
        rejoins = self._config.reported is not None
        if rejoins and not metadata.get("complete"):
            metadata = self._as_reported(metadata, first_epoch)
        self._align_data(metadata.get("data_epochs"))
        fit = FitCheckpoints(self, CallbackStates(users), metadata, arrays, first_epoch, arguments)
        if metadata:
            arguments["initial_epoch"] = arguments.get("epochs", 1) if fit.skipped else metadata["epoch"]
        return fit

    def _align_data(self, data_epochs: Sequence[int] | None) -> None:
        """Have all ranks read the same order of `dataset` next, whatever each has read by itself.

        data_epochs: of the ranks that this one has joined: the numbers of its iterations with which the fit began, and
        the epoch in progress.
        """
        epochs, peers = self.rank.data_epochs, self.rank.peers
        if epochs is None or not self._config.whole_data:
            return
        if data_epochs is not None:
            epochs.next = data_epochs[0]
        elif peers.ring is not None:
            number = np.array([epochs.next], np.int64)
            peers.collective.broadcast(number, peers.announcement(announcement.WEIGHTS))
            epochs.next = int(number[0])

    def _join(self, regrouping: Regrouping) -> tuple[Metadata, Arrays]:
        """Wait until the others take this rank into the fit. Where they are, or how the fit has ended."""
        peers, progress = self.rank.peers, self.rank.progress
        regrouping.joins_in = progress.fit
        while True:
            try:
                regrouping.regroup(peers)
                metadata, arrays = membership.send_state(peers.collective, None)
                break
            except announcement.PeerLost:
                continue
            except TooLate as late:
                peers.ring = SingleRank()
                self._positions = {position.fit: position for position in late.positions}
                if self.joins:
                    raise RuntimeError(_NO_CHECKPOINT % (progress.fit + 1)) from None
                return self._load(self._positions[progress.fit])
        regrouping.has_joined, regrouping.has_newcomers = True, False
        regrouping.count, progress.exchanges = metadata["count"], metadata["exchanges"]
        progress.cell_collectives, regrouping.catches_up = metadata["cell_collectives"], True
        return metadata, arrays

    @property
    def joins(self) -> bool:
        """Whether this rank is to join the others in the fit that begins."""
        regrouping, position = self.rank.peers.regrouping, self._positions.get(self.rank.progress.fit)
        return regrouping is not None and not regrouping.has_joined and (position is None or not position.complete)

    def _as_reported(self, metadata: Metadata, first_epoch: int) -> Metadata:
        """For a worker that rejoins while the others continue: from the first epoch that has not been reported."""
        fit = self.rank.progress.fit
        history = (self._config.reported or {}).get(fit, {})
        position = Position(fit, first_epoch + max(map(len, history.values()), default=0), 0, False)
        return {"callbacks": [], "model": "", "steps": None, **metadata, "history": history, **position._asdict()}

    def _load(self, position: Position) -> tuple[Metadata, Arrays]:
        """The chief's (about, arrays), where it sends them or the driver has; else what is known without a file."""
        config = self._config
        path = os.path.join(config.scratch, FOLDER, position.file)
        if self.rank.peers.ring is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._broadcast(path)
        elif not os.path.exists(path):
            return dict(position._asdict(), steps=None, history={}, callbacks=[]), {}
        return checkpoint.read(path)

    def _broadcast(self, path: str) -> None:
        """Write the chief's file to the same path of every other rank's folder."""
        peers, is_chief = self.rank.peers, self.rank.peers.position == 0
        size = np.array([os.path.getsize(path) if is_chief else 0], np.int64)
        peers.collective.broadcast(size, peers.announcement(announcement.WEIGHTS))
        with open(path, "rb" if is_chief else "wb") as file:
            for begin in range(0, int(size[0]), BLOCK_BYTES):
                count = min(BLOCK_BYTES, int(size[0]) - begin)
                block = np.frombuffer(file.read(count), np.uint8).copy() if is_chief else np.empty(count, np.uint8)
                peers.collective.broadcast(block, peers.announcement(announcement.WEIGHTS))
                if not is_chief:
                    file.write(block.data)


class FitCheckpoints:
    """Checkpoints of one call of `fit`. `before` and `after`: callbacks around the runtime's own, after the user's.

    membership: who trains the fit, where ranks come and go.
    """

    def __init__(
        self,
        of_rank: Checkpoints,
        callbacks: CallbackStates,
        metadata: Metadata,
        arrays: Arrays,
        first_epoch: int,
        arguments: Mapping[str, Any],
    ) -> None:
        """metadata, arrays: what it continues from, or nothing; first_epoch: the one that the user wants. arguments: of
        the call, by name.
        """
        self._rank, self._access, self._metric_sums = of_rank.rank, of_rank.access, of_rank.metric_sums
        self._config, self._sender = of_rank.rank.config, of_rank.sender
        self._callbacks, self._metadata, self._arrays, self._first_epoch = callbacks, metadata, arrays, first_epoch
        self._arguments = arguments
        self._rejoins = self._config.reported is not None  # the others of a parameter-server run are somewhere in it
        self._history = {name: list(values) for name, values in metadata.get("history", {}).items()}
        self._steps = metadata.get("steps")  # of an epoch, once one is over
        self._first_rate: float | None = None
        self._held_rate: float | None = None  # of the epoch in which it continues
        self._held_values: list[tuple[Any, np.ndarray]] = []  # of variables that are not trained, then
        self._due_at = time.monotonic()
        number = 0 if of_rank.rank.data_epochs is None else of_rank.rank.data_epochs.next
        self._epochs_begin_anew = False
        self._data_epochs = [number, number]  # of `dataset`: when the fit begins, and the epoch in progress
        self.membership: membership.Membership | None = None
        self.before = _Before(self)
        self.after = _After(self, self._checked_every())

    @property
    def reports(self) -> bool:
        """Whether its events are the run's: not where an earlier attempt has sent them."""
        return not self.skipped or self._of_another_run

    @property
    def _of_another_run(self) -> bool:
        return bool(self._metadata) and bool(self._config.spec.resume) and self._config.attempt == 1

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
        if not self._of_another_run or not self._rank.peers.is_chief:
            return
        history, fit = self._metadata["history"], self._rank.progress.fit
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
        return bool(self._metadata.get("complete"))

    def restore(self, model: Model) -> None:
        """Before the first epoch: the state that this attempt continues from."""
        self._callbacks.note_begin()
        self._first_rate = optimizers.fixed_rate(model.optimizer)
        if not self._metadata:
            return
        self._access.build_all(model)
        if self._arrays:
            source = "the checkpoint of fit %d (%s)" % (self._rank.progress.fit + 1, self._metadata["model"])
            put_in_model(model, self._access, self._arrays, source)
            self._restore_rate(model)
        for path in self._callbacks.restore(self._metadata["callbacks"], self._arrays):
            self._rank.reporter.notice_once("warning", _NO_BEST_FILE % path)
        # The others have been put back, and are as large as the model and its optimizer.
        self._arrays = {name: array for name, array in self._arrays.items() if name.startswith(_METRICS)}
        if self._within_epoch:
            self._callbacks.hold()
            self._held_values = [(variable, np.array(array_of(variable))) for variable in model.non_trainable_variables]
        if not self._rejoins:  # also in a fit that is over: the next one may go on with its data
            epochs = self._metadata["epoch"] - self._first_epoch
            steps, step = self._metadata["steps"], self._metadata["step"]
            self._epochs_begin_anew = self._access.fast_forward(
                self._first_epoch, max(0, epochs), steps, step, self._arguments, over=self.skipped
            )

    def _restore_rate(self, model: Model) -> None:
        """The rate as it was, which callbacks may have changed; but the cell's, if that is another one than before."""
        cell_rate, (rate_at_start, rate_at_checkpoint) = self._first_rate, self._metadata.get("rates") or (None, None)
        if cell_rate is None or rate_at_start is None or rate_at_checkpoint is None:
            return
        inner_optimizer(model.optimizer).learning_rate = rate_at_checkpoint if cell_rate == rate_at_start else cell_rate
        if self._within_epoch and cell_rate == rate_at_start:
            self._held_rate = rate_at_checkpoint
        if cell_rate != rate_at_start and self._rank.peers.is_chief:
            message = "it continues at the cell's learning rate, %.6g: the resumed run had begun with %.6g"
            self._rank.reporter.notice("info", message % (cell_rate, rate_at_start))

    @property
    def _within_epoch(self) -> bool:
        """Whether the state that it continues from is of an epoch that had begun."""
        return bool(self._metadata.get("step")) or self.joins

    def restore_again(self, model: Model) -> None:
        """In the first epoch, if that had begun: what the cell's callbacks do at its begin is a part of the state."""
        self._callbacks.put_back()
        for variable, value in self._held_values:
            variable.assign(value)
        self._held_values = []
        if self._held_rate is not None:
            inner_optimizer(model.optimizer).learning_rate = self._held_rate
        data_epochs, of_others = self._rank.data_epochs, self._metadata.get("data_epochs")
        if data_epochs is not None and of_others is not None and self._epochs_begin_anew:
            data_epochs.next = of_others[1]  # callbacks may have read it, too

    def begin_epoch(self) -> None:
        """Note with which iteration of `dataset` the epoch begins."""
        if self._rank.data_epochs is not None:
            self._data_epochs[1] = self._rank.data_epochs.next

    def join(self, model: Model, epoch: int) -> None:
        """The parameter server says which `epoch` the others are in. The chief also reports those before it."""
        if not self._rejoins:
            return
        begin = self._metadata["epoch"]
        if not self._rank.peers.is_chief:
            begin = max(self._first_epoch, epoch)
            self._access.begin_at(model, begin)
        self._access.fast_forward(
            self._first_epoch, begin - self._first_epoch, self._steps, 0, self._arguments, over=False
        )

    def restore_metrics(self, model: Model) -> None:
        """In the first epoch, if that had begun: what the metrics had counted, on the chief for all."""
        if self.counted and self._rank.peers.is_chief:
            for variable, value in zip(_metric_states(model), self.counted):
                variable.assign(value)

    @property
    def steps_of_all(self) -> int | None:
        """How many steps all workers had made where the fit continues."""
        steps: int | None = self._metadata.get("steps_of_all")
        return steps

    @property
    def counted(self) -> list[np.ndarray]:
        """What the metrics had counted of the epoch in which the fit continues, by state; else nothing."""
        count = sum(name.startswith(_METRICS) for name in self._arrays) if self._metadata.get("step") else 0
        return [self._arrays[_METRICS + str(i)] for i in range(count)]

    @property
    def joins(self) -> bool:
        """Whether this rank has joined others within the fit."""
        return "count" in self._metadata

    def end_epoch(self, model: Model, epoch: int, logs: Any, is_last_epoch: bool) -> None:
        self._steps = self._rank.progress.step
        for name, value in (logs or {}).items():
            self._history.setdefault(name, []).append(np.asarray(value).tolist())  # an exact double, or a list
        is_due = not (is_last_epoch or model.stop_training) and time.monotonic() >= self._due_at
        with self._access.state_gathered(model, self._rank.peers.is_chief and is_due and self._can_take) as takes:
            if takes:
                self._take(model, Position(self._rank.progress.fit, epoch + 1, 0, False), {})

    def end_step(self, model: Model, epoch: int, step: int) -> None:
        """After step number `step`, from 1, of an epoch, where --checkpoint-every wants one. All ranks call it."""
        peers = self._rank.peers
        if self.membership is not None:  # every rank knows what all have counted
            states = self.membership.metric_totals()
        else:
            states = self._metric_sums.parts_of_sum(_metric_states(model))
        averaged = self._access.statistics(model)
        flat = np.concatenate([state.reshape(-1) for state in states] or [np.zeros(0)])
        counted = flat.size
        if peers.ring is not None:
            flat = np.concatenate([flat, *(np.asarray(variable, np.float64).reshape(-1) for variable in averaged)])
            summed_from = 0 if self.membership is None else counted
            flat[counted:] /= len(peers.allreduce(flat[summed_from:], announcement.CHECKPOINT))
            reduce.assign(averaged, flat[counted:])
        with self._access.state_gathered(model, self._rank.peers.is_chief and self._can_take) as takes:
            if takes:
                bounds = np.cumsum([state.size for state in states])[:-1]
                summed = [part.reshape(state.shape) for part, state in zip(np.split(flat[:counted], bounds), states)]
                arrays = {_METRICS + str(i): array for i, array in enumerate(summed)}
                self._take(model, Position(self._rank.progress.fit, epoch, step, False), arrays)

    def complete(self, model: Model, history: Any) -> None:
        """The fit has returned `history`: complete that by what earlier attempts had, and keep the result."""
        if self._rejoins:
            self._access.begin_at(model, None)
        before = self._metadata.get("history", {})
        for name, values in before.items():
            history.history[name] = list(values) + list(history.history.get(name, ()))
        count = max(map(len, before.values()), default=0)
        history.epoch[:0] = range(self._first_epoch, self._first_epoch + count)
        if self._rank.peers.is_chief and not self.skipped:
            epochs = self._first_epoch + max(map(len, self._history.values()), default=0)
            self._take(model, Position(self._rank.progress.fit, epochs, 0, True), {})

    @property
    def _can_take(self) -> bool:
        return not self._sender.busy

    def _take(self, model: Model, position: Position, metrics: dict[str, np.ndarray]) -> None:
        if self._config.in_ensemble:
            return  # of several models, each would need its own
        began = time.monotonic()
        metadata, arrays = self.state(model, position, metrics)
        self._sender.send(position, metadata, arrays)
        copied_at = time.monotonic()
        self._due_at = copied_at + max(LEAST_SECONDS, (copied_at - began) / MOST_OF_THE_TIME)

    def state_for_newcomers(self, model: Model, counted: Sequence[np.ndarray]) -> tuple[Metadata, Arrays]:
        """What a rank needs that joins before the next step. counted: by the metrics, of all ranks, by state."""
        progress, regrouping = self._rank.progress, self._rank.peers.regrouping
        assert regrouping is not None
        position = Position(progress.fit, progress.epoch, progress.step, False)
        metadata, arrays = self.state(model, position, {_METRICS + str(i): array for i, array in enumerate(counted)})
        metadata.update(count=regrouping.count, exchanges=progress.exchanges, data_epochs=self._data_epochs)
        metadata.update(cell_collectives=progress.cell_collectives)
        return metadata, arrays

    def state(self, model: Model, position: Position, metrics: Arrays) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(What is known, {name: array}) of the fit at a position. metrics: their states, within an epoch."""
        arrays = {**of_model(model, self._access), **metrics}
        callbacks, of_callbacks = self._callbacks.take(MAX_BYTES - sum(array.nbytes for array in arrays.values()))
        arrays.update(of_callbacks)
        metadata = dict(
            position._asdict(),
            steps=self._steps,
            history=self._history,
            callbacks=callbacks,
            model=model.name,
            rates=(self._first_rate, optimizers.fixed_rate(model.optimizer)),
            steps_of_all=learning_rate.steps_of_all(model.optimizer),
        )
        return metadata, arrays


class _Before(keras.callbacks.Callback):
    """After the user's callbacks, which begin anew, and before those that share out what it restores."""

    def __init__(self, fit: FitCheckpoints) -> None:
        super().__init__()
        self._fit, self._begins = fit, True

    def on_train_begin(self, logs: Any = None) -> None:
        self._fit.restore(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._begins:
            self._fit.restore_again(self.model)
            self._fit.restore_metrics(self.model)
        self._begins = False
        self._fit.begin_epoch()


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
        self._last_step: int | None = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._last_step is None:
            self._last_step = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._every:
            return
        step = batch + 1
        if step // self._every > (self._last_step or 0) // self._every and step != self.params.get("steps"):
            self._last_step = step
            self._fit.end_step(self.model, self._epoch, step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._fit.end_epoch(self.model, epoch, logs, is_last_epoch=epoch + 1 == self.params.get("epochs"))


class _Sender:
    """Streams checkpoints to the driver, one at a time, while training continues."""

    def __init__(self, config: RankConfig, reporter: Reporter) -> None:
        self._config, self._reporter = config, reporter
        self._thread: threading.Thread | None = None
        self._refused = False

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def send(self, position: Position, metadata: Metadata, arrays: Arrays) -> None:
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
        path = os.path.join(self._config.scratch, "leaving-" + position.file)
        copies: Arrays | None = None
        if size <= MOST_COPIED_BYTES:
            copies = {name: np.array(array) for name, array in arrays.items()}
        else:
            try:
                checkpoint.write(path, metadata, arrays)
            except OSError as error:
                return _print(error)
        self._thread = threading.Thread(target=self._send, args=(path, position, metadata, copies), daemon=True)
        self._thread.start()

    def _send(self, path: str, position: Position, metadata: Metadata, arrays: Arrays | None) -> None:
        """arrays: None where the file is there already."""
        try:
            if arrays is not None:
                checkpoint.write(path, metadata, arrays)
            self._reporter.send_checkpoint(path, position)
            os.unlink(path)
        except wire.ConnectionLost:
            pass  # the driver is gone
        except OSError as error:
            _print(error)


def _print(error: OSError) -> None:
    print("a checkpoint could not be written: %s" % error, file=sys.stderr)


def _metric_states(model: Model) -> list[Variable]:
    return [variable for metric in model.metrics for variable in metric.variables]
