"""What an eager step sets in Python where each worker trains on batches of its own: named after the first step."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from ..keras_types import Batch
from ..trial.python_state import PythonState
from .step_states import ModelStep
from .step_trial import losses_and_metrics

_OF_WORKER = (
    "%s sets %s in Python, and each of the %d workers for batches of its own: the notebook gets what rank 0 has set; "
    "use --strategy allreduce, and ddl.all_gather(tensor) for the rows of all workers"
)


class PythonOfWorker:
    """Of one step of a model."""

    def __init__(self, step: ModelStep) -> None:
        self._step, self._is_new = step, step.context.config.local_updates and step.context.config.size > 1

    def watched(self, run: Callable[[Batch], Any], batch: Batch) -> Any:
        """The step's result. run: makes the step."""
        context, model = self._step.context, self._step.model
        if not (self._is_new and context.calls.training and tf.executing_eagerly()):
            return run(batch)
        self._is_new = False
        state = PythonState([self._step.function, model, *losses_and_metrics(model)])
        result = run(batch)
        names = sorted(state.changes())
        if names:
            message = _OF_WORKER % (self._step.name, ", ".join(map(repr, names)), context.config.size)
            context.rank.reporter.notice_once("warning", message)
        return result
