"""The trial of a loss: whether it is a mean over rows, a sum, or neither, by its values and its gradients."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import tensorflow as tf

from ..keras_types import Tensor
from . import row_trial
from .python_state import differing
from .row_trial import COUPLED, OUTPUT, Leaf, Verdict
from .sandbox import Sandbox
from .undone_assignments import undone_assignments


def try_loss(loss: Callable[..., Tensor], leaves: Sequence[Leaf], code: Any) -> Verdict:
    """What `loss`, a function of tensors like `leaves`, does to rows.

    A loss whose state in Python follows from the rows, as it can in eager steps, is coupled: it sees one of all rows.

    code: the function or object whose code it is.
    """
    sandbox, changes, is_eager = Sandbox(row_trial.ROWS, [code]), [], tf.executing_eagerly()

    def evaluate(rows: Sequence[np.ndarray], begin: int, size: int) -> list[np.ndarray]:
        sandbox.noise.begin_call(begin, size, len(rows[0]))
        with sandbox.python.restored():
            result = _value_and_slope(loss, leaves, rows, slice(begin, begin + size))
            changes.append(sandbox.python.changes() if is_eager else {})
        return result

    with tf.init_scope(), undone_assignments(), sandbox.python.restored():
        contents = row_trial.look_into(loss, leaves)
    with sandbox.entered():
        verdict = row_trial.verdict(evaluate, leaves, contents.constants, sandbox.scalars, sandbox.comparisons)
    if verdict.kind is not None and any(differing(changes[0], other_changes) for other_changes in changes):
        return Verdict(COUPLED)
    return verdict._replace(unused=contents.unused)


def _value_and_slope(
    loss: Callable[..., Tensor], leaves: Sequence[Leaf], rows: Sequence[np.ndarray], selection: slice
) -> list[np.ndarray]:
    """The loss of the selected rows, and its slope along a direction of the outputs that is random for each row.

    The slope is needed because a loss may have the same value for all rows and yet the gradient of a mean over the
    batch: one that is divided by itself, for example. A slope that is not finite is left out.
    """
    tensors = [tf.constant(array[selection]) for array in rows]
    outputs = [i for i, leaf in enumerate(leaves) if leaf.role == OUTPUT and leaf.dtype.kind == "f"]
    with tf.GradientTape() as tape:
        tape.watch([tensors[i] for i in outputs])
        value = loss(*tensors)
    result = [np.asarray(value)]
    gradients = tape.gradient(value, [tensors[i] for i in outputs])
    slope = 0.0
    for i, gradient in zip(outputs, gradients):
        if gradient is not None:
            signs = np.random.default_rng(i).choice((-1.0, 1.0), rows[i].shape)[selection]
            slope += float(np.sum(signs * np.asarray(tf.convert_to_tensor(gradient), np.float64)))
    return result + [np.asarray(slope, result[0].dtype)] if np.isfinite(slope) else result
