"""The logs of the job, and the ends of batches for callbacks of the cell: they see these logs and stop all ranks."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from ..gradients.reduce import agree_on_stop
from ..keras_types import Metric, Model, is_of_keras
from ..rank.peers import Peers
from .fit_in_progress import FitInProgress
from .logs import flat_logs

#: The methods of a callback that get them, in training and in a fit's validation.
_TRAIN_METHODS, _TEST_METHODS = ("on_train_batch_end", "on_batch_end"), ("on_test_batch_end",)

#: Begins the names of what ranks say about logs; more than this part of the rows has to say so.
_FLAG, _AGREED = "is of a metric: ", 0.5


class BatchLogs(keras.callbacks.Callback):
    """Comes before the cell's callbacks. Its subclasses say after which batches.

    of_job: makes, of numbers that a step of this rank has returned, those of all rows. sum_metrics: makes the states of
    metrics those of all rows.
    """

    def __init__(
        self, of_job: Callable[[dict[str, Any]], dict[str, float]], sum_metrics: Callable[[Sequence[Metric]], None]
    ) -> None:
        super().__init__()
        self._of_job, self._sum_metrics = of_job, sum_metrics

    def update(self, logs: Any) -> None:
        """Put the job's values in the place of this rank's."""
        if logs:
            logs.update(logs_of_job(logs, results_of_metrics(self.model), self._of_job, self._results_of_job))

    def _results_of_job(self) -> dict[str, Any]:
        states = [variable for metric in self.model.metrics for variable in metric.variables]
        before = [tf.identity(variable) for variable in states]
        self._sum_metrics(self.model.metrics)
        results = results_of_metrics(self.model)
        for variable, value in zip(states, before):
            variable.assign(value)
        return results


class TrainBatchLogs(BatchLogs):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.update(logs)


class TestBatchLogs(BatchLogs):
    """fit: whose validation has a part of each batch here, or all of each batch."""

    def __init__(self, fit: FitInProgress, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._fit = fit

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._fit.cuts_validation:
            self.update(logs)


class AgreedStop(keras.callbacks.Callback):
    """Comes behind the cell's callbacks: a fit that they stop at the end of a batch ends there, on all ranks."""

    def __init__(self, peers: Peers) -> None:
        super().__init__()
        self._peers = peers

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        agree_on_stop(self._peers)


def logs_of_job(
    logs: dict[str, Any],
    results: dict[str, Any],
    of_job: Callable[[dict[str, Any]], dict[str, float]],
    results_of_job: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """A step's logs, averaged over the rows of all ranks; results of metrics are replaced by those of the job.

    results: those of this rank's metrics. The ranks agree on what is a result, as one may have had no rows.
    """
    logs = flat_logs(logs)
    scalars = {name: value for name, value in logs.items() if np.ndim(value) == 0}
    flags = {_FLAG + name: float(_equal(value, results.get(name))) for name, value in scalars.items()}
    job = of_job({**scalars, **flags})
    returned = {name: job[name] for name in scalars if job[_FLAG + name] < _AGREED}
    if len(returned) == len(logs):
        return returned
    job_results = results_of_job()
    return {name: returned[name] if name in returned else _plain(job_results.get(name, logs[name])) for name in logs}


def results_of_metrics(model: Model) -> dict[str, Any]:
    """By name; none where a metric has no result."""
    try:
        return dict(model.get_metrics_result())
    except TypeError:  # as Keras 2 expects of some
        return {}


def are_read_by(callback: Any) -> bool:
    """Whether a callback of the cell looks at the logs of batches of the training."""
    if getattr(callback, "save_freq", getattr(callback, "update_freq", "epoch")) != "epoch":  # of Keras' own
        return True
    return _has_own(callback, _TRAIN_METHODS)


def of_validation_are_read_by(callback: Any) -> bool:
    """Whether a callback of the cell looks at the logs of batches of a validation."""
    return _has_own(callback, _TEST_METHODS)


def _has_own(callback: Any, names: Sequence[str]) -> bool:
    methods = [getattr(callback, name, None) for name in names]
    functions = [getattr(method, "__func__", method) for method in methods]
    return any(not is_of_keras(function) for function in functions if function is not None)


def _equal(value: Any, result: Any) -> bool:
    return result is not None and np.ndim(result) == 0 and bool(np.isclose(float(value), float(result), equal_nan=True))


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array
