"""The trial of a metric: whether the state of a batch is the sum of the states of its slices."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import tensorflow as tf

from ..keras_types import Metric, Tensor
from . import row_trial
from .python_state import PythonState, differing
from .row_trial import SUM, Leaf
from .sandbox import Sandbox


def adds_up(metric: Metric, update: Callable[[Sequence[Tensor]], Any], leaves: Sequence[Leaf], by_row: bool) -> bool:
    """Whether the states of `metric` are variables that add up over rows, and start at zero.

    update: updates the metric with tensors like `leaves`. by_row: whether they add up over batches of one row each,
    which also holds where no made-up rows gave a number.
    """
    sandbox = Sandbox(row_trial.ROWS, [metric])
    keeps_in_python: set[str] = set()

    def evaluate(rows: Sequence[np.ndarray], begin: int, size: int) -> list[np.ndarray]:
        sandbox.noise.begin_call(begin, size, len(rows[0]))
        metric.reset_state()
        at_reset = sandbox.python.changes()
        batch_size = 1 if by_row else size
        for start in range(begin, begin + size, batch_size):
            update([tf.constant(array[start : start + batch_size]) for array in rows])
        keeps_in_python.update(differing(at_reset, sandbox.python.changes()))
        return [np.asarray(variable) for variable in metric.variables]

    with sandbox.entered() as created:
        try:
            result = _is_zero_after_reset(metric)
        except Exception:  # any error of a metric that creates its states in its first update
            result = False
        if result:
            fits = row_trial.fitting(evaluate, leaves)
            result = (by_row if fits is None else SUM in fits) and not keeps_in_python
    if created:  # TensorFlow initializes them only after it has traced the step
        with tf.init_scope():
            metric.reset_state()
    return result


def starts_at_zero(metric: Metric) -> bool:
    """Whether the states of `metric` are zeros after a reset. It is left as it was."""
    before = [np.asarray(variable) for variable in metric.variables]
    with PythonState([metric]).restored():
        result = _is_zero_after_reset(metric)
    for variable, value in zip(metric.variables, before):
        variable.assign(value)
    return result


def _is_zero_after_reset(metric: Metric) -> bool:
    metric.reset_state()
    return not any(np.any(np.asarray(variable)) for variable in metric.variables)
