"""The optimizer's update of all variables as one function that XLA compiles: some passes over memory instead of dozens.

It computes what Keras' own optimizers say, within rounding. Only those are compiled, on dense gradients: what a user's
optimizer, schedule or constraint does might be nothing that XLA knows.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow as tf

from ..gradients.exchange import is_sparse
from ..keras_types import Gradient, Optimizer, Tensor, Variable, is_of_keras


def apply(
    update: Callable[[Sequence[Gradient]], Any],
    optimizer: Optimizer,
    gradients: Sequence[Gradient],
    variables: Sequence[Variable],
    counts: dict[int, Variable] | None = None,
) -> Any:
    """`update(gradients)`, where `optimizer` changes `variables` in place; compiled where that can be.

    counts: Gets the iterations of an optimizer whose update is compiled, by its id.
    """
    if not _can_compile(optimizer, gradients, variables):
        return update(gradients)
    if counts is not None:
        counts[id(optimizer)] = optimizer.iterations
    if not optimizer.built:
        with tf.init_scope():
            optimizer.build(list(variables))
    dense = [gradient for gradient in gradients if gradient is not None]

    def compiled(*arrays: Tensor) -> None:
        reduced = iter(arrays)
        update([None if gradient is None else next(reduced) for gradient in gradients])

    return tf.function(compiled, jit_compile=True, autograph=False)(*dense)


def _can_compile(optimizer: Optimizer, gradients: Sequence[Gradient], variables: Sequence[Variable]) -> bool:
    """Whether XLA is sure to know all that an update does."""
    rate = getattr(optimizer, "_learning_rate", None)
    return (
        not tf.executing_eagerly()
        and not tf.distribute.has_strategy()
        and is_of_keras(type(optimizer))
        and (not callable(rate) or is_of_keras(type(rate)))
        and all(gradient is None or (tf.is_tensor(gradient) and not is_sparse(gradient)) for gradient in gradients)
        and all(
            getattr(variable, "constraint", None) is None or is_of_keras(type(variable.constraint))
            for variable in variables
        )
    )
