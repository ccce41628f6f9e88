"""The logs of the job: at the end of an epoch, an evaluation or a batch, the ranks' metrics are put together."""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from ..collectives import announcement
from ..gradients import reduce
from ..keras_types import Metric, Model
from . import batch_logs
from .calls import TEST_BATCH, TRAIN_BATCH
from .equal_weights import EqualWeights
from .fit_in_progress import FitInProgress
from .keras_access import KerasAccess
from .step_context import StepContext

#: The collective that sums the metrics of a call.
_METRICS_OF = {
    "fit": announcement.EPOCH,
    "evaluate": announcement.EVALUATION,
    TRAIN_BATCH: announcement.METRICS,
    TEST_BATCH: announcement.METRICS,
}


class JobLogs:
    def __init__(self, context: StepContext, access: KerasAccess, equal_weights: EqualWeights) -> None:
        self._context, self._access, self._equal_weights = context, access, equal_weights

    def epoch_logs(self, original: Callable[..., Any], model: Model, logs: Any) -> Any:
        """In place of the method of Keras that makes logs from the states of metrics: `original(model, logs)`."""
        call, fit = self._context.calls.current, self._context.calls.fit
        if call is None or not call.shared:
            return original(model, logs)
        kind = _METRICS_OF[call.kind]
        if call.trains and self._context.config.local_updates:
            if fit is not None and fit.sync is not None:  # not in a rehearsal
                fit.sync.end_epoch(model)
            return original(model, logs or model.get_metrics_result())  # nothing of a rank without a share
        results = batch_logs.results_of_metrics(model)
        statistics = self._access.statistics(model) if call.trains else []
        if call.kind == "fit" and fit is not None and fit.repeated is not None:
            fit.repeated.put_totals()
            self._context.metric_sums.reduce(kind, [], statistics)
        else:
            self._context.metric_sums.reduce(kind, model.metrics, statistics)
        result = original(model, logs)
        if result is logs and logs:
            of_job = functools.partial(self._mean_logs, kind, call.trains)
            result = batch_logs.logs_of_job(logs, results, of_job, lambda: batch_logs.results_of_metrics(model))
        if call.kind == "fit":
            self._equal_weights.compare(model.trainable_variables)
        return result

    def at_batches(self, fit: FitInProgress, callbacks: Sequence[Any]) -> list[batch_logs.BatchLogs]:
        """The callbacks that give those of the cell the job's logs after the batches that they look at."""
        makers: list[batch_logs.BatchLogs] = []
        if any(map(batch_logs.are_read_by, callbacks)):
            makers.append(batch_logs.TrainBatchLogs(self._of_batch(training=True), self._sum_metrics))
        if any(map(batch_logs.of_validation_are_read_by, callbacks)):
            makers.append(batch_logs.TestBatchLogs(fit, self._of_batch(training=False), self._sum_metrics))
        return makers

    def _of_batch(self, training: bool) -> Callable[[dict[str, Any]], dict[str, float]]:
        return functools.partial(self._mean_logs, announcement.METRICS, training)

    def _mean_logs(self, kind: int, training: bool, logs: dict[str, Any]) -> dict[str, float]:
        """Numbers that the last step returned, over the rows of all ranks."""
        sums = self._context.weighing.summed_logs.get(training, frozenset())
        return reduce.mean_logs(self._context.rank.peers, kind, logs, self._context.rows.in_last_step, sums)

    def _sum_metrics(self, metrics: Sequence[Metric]) -> None:
        fit = self._context.calls.fit
        if fit is not None and fit.repeated is not None and self._context.calls.training:
            return fit.repeated.put_totals()
        self._context.metric_sums.reduce(announcement.METRICS, metrics, [])
