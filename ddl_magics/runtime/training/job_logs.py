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
            assert fit is not None and fit.sync is not None
            fit.sync.end_epoch(model)
            return original(model, logs)
        results = batch_logs.results_of_metrics(model)
        statistics = self._access.statistics(model) if call.trains else []
        self._context.metric_sums.reduce(kind, model.metrics, statistics)
        result = original(model, logs)
        if result is logs and logs:
            of_job = functools.partial(self._mean_logs, kind, call.trains)
            result = batch_logs.logs_of_job(logs, results, of_job, lambda: batch_logs.results_of_metrics(model))
        if call.kind == "fit":
            self._equal_weights.compare(model.trainable_variables)
        return result

    def at_batches(self) -> batch_logs.BatchLogs:
        """The callback that gives the callbacks of the cell the job's logs after each batch."""
        of_job = functools.partial(self._mean_logs, announcement.METRICS, True)
        return batch_logs.BatchLogs(of_job, self._sum_metrics)

    def _mean_logs(self, kind: int, training: bool, logs: dict[str, Any]) -> dict[str, float]:
        """Numbers that the last step returned, over the rows of all ranks."""
        sums = self._context.weighing.summed_logs.get(training, frozenset())
        return reduce.mean_logs(self._context.rank.peers, kind, logs, self._context.rows.in_last_step, sums)

    def _sum_metrics(self, metrics: Sequence[Metric]) -> None:
        self._context.metric_sums.reduce(announcement.METRICS, metrics, [])
