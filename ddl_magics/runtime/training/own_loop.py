"""Training outside of `fit`: the steps of a cell's own loop, reported as a fit without epochs.

A step is a call of `train_on_batch`, a batch of `ddl.distribute` on which an optimizer makes an update, or, in a loop
without `ddl.distribute`, an update.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

import numpy as np
import tensorflow as tf

from ..collectives.announcement import STEP
from ..gradients.batch import Share
from ..gradients.traced_step import AS_DECLARED, OF_CUT, OF_LOCAL
from ..keras_types import Model
from ..rank.rank import Rank
from ..stopping import StopRun
from .batches_in_work import BatchesInWork
from .logs import finite_numbers
from .rows import RowCounter
from .step_buckets import StepBuckets

MEAN, SUM = "mean", "sum"  # as `reduction` of `ddl.distribute`

#: So many updates are examined for equal gradients on all ranks, up to the first that is not zero.
LOOKS = 16
_TOLERANCE = 1e-5
_MAX_SAMPLE_BYTES = 1 << 20

_NOTHING_SHARED = (
    "the gradients of this loop are the same on all %d workers: each computes every batch as a whole, and nothing is "
    "shared; write `for batch in ddl.distribute(dataset)`, so that each worker computes its rows of a batch"
)

_NO_TOTAL = (
    "reduction='sum' needs batches that all workers read, and these are each worker's own: divide the loss by the "
    "number of rows, and leave reduction out"
)

_NO_ROWS = (
    "a batch of this loop has fewer rows than there are workers: a worker without a row computes on a copy of "
    "another's row, which counts in the metrics that the loop updates, but not in the update; batch(n, "
    "drop_remainder=True) leaves such a batch out"
)

_TRACED_BEFORE = (
    "a tf.function of this loop was traced before ddl.distribute handed out a batch: it draws the same random numbers "
    "on all workers, and averages masked losses by slice; call it for the first time inside the loop"
)
_TRACED_OTHERWISE = (
    "two loops share one tf.function that updates a model, but they differ in `reduction` of ddl.distribute, or one "
    "reads --data and the other does not and their loss is a sum over rows; write one function for each loop"
)


class TracedUpdate(NamedTuple):
    """Where an update was traced.

    distributes: in a loop over `ddl.distribute`. sums: its losses are sums over rows. as_sum: as in `TracedStep`.
    """

    distributes: bool
    sums: bool
    as_sum: str | None


class OwnLoop:
    """The steps of a rank between two calls of `fit`: they count as one loop, even if it trains several models.

    updates: those that this rank has seen in the run.
    """

    def __init__(self, rank: Rank, rows: RowCounter, average: Callable[[list[Model]], None]) -> None:
        """average: averages over ranks the variables of trained models that gradients do not change."""
        self._rank, self._rows, self._average = rank, rows, average
        self._buckets: StepBuckets | None = None  # while a loop is in progress
        self._models: list[Model] = []  # of the loop in progress that `step` has trained
        self._updated: list[Model] = []  # those that optimizers of the cell update
        self._metrics: dict[str, float | None] = {}  # the newest
        self._in_work = BatchesInWork(rank.config.size)
        self._reduction: str | None = None  # of the losses of the batches in work
        self._local = False  # the newest batch in work is of data that only this rank knows
        self._read_rows: list[int] = []  # of each batch read since the last step
        self._updates = 0  # since the last step
        self._apart = False  # there were updates since the last average
        self.updates = 0
        self._alone = not rank.config.reduces_gradients
        self._looks = 0 if self._alone else LOOKS

    # -- train_on_batch

    def step(self, model: Model, take: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Take a training step of `model`.

        Returns:
            Its logs.

        Raises:
            StopRun: After the step, if the run is to stop.
        """
        self._rank.keep(model)
        if all(model is not other_model for other_model in self._models):
            self._models.append(model)
        buckets, stop = self._begin(), self._rank.stop
        stop.fitting = True
        self.updates += 1
        buckets.begin_step()
        try:
            logs = take()
        finally:
            stop.fitting = False
        is_first_model = model is self._models[0]
        for name, value in finite_numbers(logs).items():
            self._metrics[name if is_first_model else "%s of %s" % (name, model.name)] = value
        self._end_step(buckets)
        if stop.run_agreed or (stop.asked and self._alone):
            raise StopRun
        return logs

    @property
    def hides_updates(self) -> bool:
        """Whether a loop may make updates that are not seen here, as they are of a traced function."""
        return self._alone and self._buckets is not None

    # -- an optimizer and ddl.distribute

    @property
    def distributes(self) -> bool:
        """Whether the cell computes on a slice of a batch."""
        return bool(self._in_work)

    def notice(self, level: str, message: str) -> None:
        """Show the user a line about the loop, once a run."""
        self._rank.reporter.notice_once(level, message)

    def note(self, model: Model) -> None:
        """An optimizer of the cell updates `model`."""
        self._rank.keep(model)
        self._updated.append(model)

    def read(self, reader: Any, share: Share, reduction: str | None) -> None:
        """A reader of `ddl.distribute` hands out its next slice.

        Args:
            reduction: Of the losses that follow; None if the cell does not say.

        Raises:
            StopRun: The run is to stop.
        """
        if self._rank.stop.run_agreed:
            raise StopRun
        self._close_step()
        self._reduction, self._local = reduction, int(share.total) < 0
        self._in_work.read(reader, share)
        self._read_rows.append(int(share.rows))
        if self._rank.config.is_chief and 0 <= int(share.total) < self._rank.config.size:
            self.notice("info", _NO_ROWS)
        if self._buckets is not None:
            self._buckets.begin_step()

    def end_reading(self, reader: Any) -> None:
        self._in_work.close(reader)

    def end_epoch(self) -> None:
        """A reader has reached its end: after training, average the ranks' statistics."""
        self._close_step()
        self._read_rows = []
        if self._buckets is None or not (self._apart or self._alone):
            return
        self._meet()
        self._flush(self._buckets)
        progress = self._rank.progress
        progress.epoch, progress.step = progress.epoch + 1, 0
        self._buckets.open(0)

    def count_update(self) -> None:
        """Count an update that this rank makes on its own, or traces."""
        self._begin()
        self._updates += 1
        self.updates += 1

    def update(self, traced: TracedUpdate, sample: np.ndarray) -> tuple[np.int64, np.int64, np.ndarray]:
        """Count an update that is about to be made. Called by TensorFlow.

        Args:
            traced: Where the update was traced.
            sample: Values of its gradients, of shape (n,).

        Returns:
            (rows, total, sample) of its `Share`.
        """
        buckets = self._begin()
        self._updates += 1
        self.updates += 1
        if self._in_work:
            self._apart = True
            rows, total, check = self._in_work.use()
            self._check(traced, total)
            return np.int64(rows), np.int64(total), check
        self._look_for_shares(sample)
        self._end_step(buckets)
        buckets.begin_step()
        return np.int64(1), np.int64(-1), np.zeros((1, 1))

    def _check(self, traced: TracedUpdate, total: int) -> None:
        """Warn of an update that was traced outside of the loop, and refuse it if it would be wrong here."""
        if not traced.distributes:
            self._rank.reporter.notice_once("warning", _TRACED_BEFORE)
        as_sum = AS_DECLARED if self._reduction else OF_LOCAL if self._local else OF_CUT
        if traced.sums != (self._reduction == SUM) or traced.as_sum not in (None, as_sum):
            raise ValueError(_TRACED_OTHERWISE)
        if traced.sums and total < 0:
            raise ValueError(_NO_TOTAL)

    def _look_for_shares(self, sample: np.ndarray) -> None:
        """Warn once if all ranks compute the same gradients."""
        if not self._looks:
            return
        self._looks -= 1
        peers = self._rank.peers
        local_sample = np.asarray(sample, np.float64)
        gathered = peers.collective.gather(local_sample.tobytes(), peers.announcement(STEP), _MAX_SAMPLE_BYTES)
        samples = [np.frombuffer(values, np.float64) for values in gathered]
        largest = max(float(np.abs(values).max(initial=0.0)) for values in samples)
        if not largest:
            return
        self._looks = 0
        if all(np.allclose(values, samples[0], rtol=0.0, atol=_TOLERANCE * largest) for values in samples):
            self._rank.reporter.notice_once("warning", _NOTHING_SHARED % len(samples))

    # -- the loop

    def finish(self) -> None:
        """End the loop in progress, if any: a fit begins, or the cell has ended."""
        self._close_step()
        if self._buckets is None:
            return
        if self._apart:
            self._meet()
        self._flush(self._buckets)
        self._buckets, self._models = None, []
        self._in_work = BatchesInWork(self._rank.config.size)
        self._rank.progress.training = False
        if self._rank.peers.is_chief:
            self._rank.reporter.emit("fit_end", fit=self._rank.progress.fit, stopped=False)

    def _begin(self) -> StepBuckets:
        rank = self._rank
        if self._buckets is not None:
            return self._buckets
        rank.progress.begin_fit()
        self._buckets = buckets = StepBuckets(rank, self._rows)
        buckets.begin_step()
        if rank.peers.is_chief:
            name = next((model.name for model in self._models + self._updated), "")
            fields = {"fit": rank.progress.fit, "model": name, "epochs": 0, "steps": None}
            rank.reporter.emit("fit", **fields, models=rank.config.models)
        return buckets

    def _close_step(self) -> None:
        """End the step on the batches that were read since the last step, if it made updates.

        A run of one rank does not see the updates of a traced function: there, each batch is a step.
        """
        if self._buckets is None or not (self._updates or self._alone):
            return
        rows, self._read_rows = self._read_rows, []
        if rows:
            self._rows.count(tf.constant(sum(rows), tf.int64), True)
            self._end_step(self._buckets)
        self._updates = 0

    def _end_step(self, buckets: StepBuckets) -> None:
        if buckets.end_step():
            self._flush(buckets)

    def _flush(self, buckets: StepBuckets) -> None:
        buckets.flush(self._metrics)
        self._metrics = {}

    def _meet(self) -> None:
        self._apart = False
        self._average(self._updated)
