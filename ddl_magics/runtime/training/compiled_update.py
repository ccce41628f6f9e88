"""The optimizer's update of all variables as one function that XLA compiles: some passes over memory instead of dozens.

It computes what Keras' own optimizers say, within rounding. Only those are compiled, on dense gradients: what a user's
optimizer, schedule or constraint does might be nothing that XLA knows.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow as tf

from ..gradients.exchange import is_sparse
from ..gradients.flat_exchange import FlatGradients
from ..keras_types import Gradient, Optimizer, Tensor, Variable, inner_optimizer, is_of_keras


def apply(
    update: Callable[[Sequence[Gradient], Sequence[Variable]], Any],
    optimizer: Optimizer,
    gradients: Sequence[Gradient],
    variables: Sequence[Variable],
    counts: dict[int, Variable] | None = None,
) -> Any:
    """`update(gradients, variables)`, where `optimizer` changes these in place; compiled where that can be.

    counts: Gets the iterations of an optimizer whose update is compiled, by its id.
    """
    if not _can_compile(optimizer, gradients, variables):
        return update(list(gradients), variables)
    if counts is not None:
        counts[id(optimizer)] = optimizer.iterations
    if not optimizer.built:
        with tf.init_scope():
            optimizer.build(list(variables))
    flat = gradients if isinstance(gradients, FlatGradients) else None  # XLA cuts them, too
    tensors = flat.flats if flat else [gradient for gradient in gradients if gradient is not None]

    def compiled(*arrays: Tensor) -> None:
        update(flat.cut(arrays) if flat else _refilled(gradients, arrays), variables)

    return tf.function(compiled, jit_compile=True, autograph=False)(*tensors)


def _refilled(gradients: Sequence[Gradient], arrays: Sequence[Tensor]) -> list[Gradient]:
    """`arrays` in place of the gradients that are not None."""
    dense = iter(arrays)
    return [None if gradient is None else next(dense) for gradient in gradients]


def _can_compile(optimizer: Optimizer, gradients: Sequence[Gradient], variables: Sequence[Variable]) -> bool:
    """Whether XLA is sure to know all that an update does."""
    inner = inner_optimizer(optimizer)
    rate = getattr(inner, "_learning_rate", None)
    return (
        not tf.executing_eagerly()
        and not tf.distribute.has_strategy()
        and is_of_keras(type(optimizer))
        and is_of_keras(type(inner))
        and (not callable(rate) or is_of_keras(type(rate)))
        and (
            isinstance(gradients, FlatGradients)
            or all(gradient is None or (tf.is_tensor(gradient) and not is_sparse(gradient)) for gradient in gradients)
        )
        and all(
            getattr(variable, "constraint", None) is None or is_of_keras(type(variable.constraint))
            for variable in variables
        )
    )
