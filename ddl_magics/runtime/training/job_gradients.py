"""The update of a step: the optimizer gets the gradients of the whole job instead of this rank's.

Second half of a training step; step.py has the first.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import tensorflow as tf

from ..gradients import overlap
from ..gradients.exchange import GradientExchange
from ..keras_types import Gradient
from .loop_slices import LoopSlices
from .step_context import StepContext


class DeferredUpdate(NamedTuple):
    """An update that a step traced for XLA leaves to the code after it."""

    apply: Callable[[Sequence[Gradient]], Any]
    gradients: Sequence[Gradient]
    scaled: bool


class JobGradients:
    """applying: the outermost optimizer is being given the job's gradients."""

    def __init__(self, context: StepContext, slices: LoopSlices) -> None:
        self._context, self._slices = context, slices
        self._deferred: list[DeferredUpdate] | None = None
        self._eager_exchanges: dict[Any, GradientExchange] = {}
        self.applying = False

    def apply(self, apply: Callable[[Sequence[Gradient]], Any], gradients: Sequence[Gradient], scaled: bool) -> Any:
        """Call `apply` with the job's gradients in place of this rank's `gradients`.

        Args:
            scaled: The optimizer scales the loss and skips updates with NaN or infinite gradients.
        """
        context = self._context
        if self._deferred is not None:
            self._deferred.append(DeferredUpdate(apply, gradients, scaled))
            return None
        if self.applying or not context.config.reduces_gradients or tf.distribute.in_cross_replica_context():
            return apply(gradients)
        if context.weighing.tries:
            return context.weighing.note_update(gradients)
        self.applying = True
        try:
            fit = context.calls.fit
            exchange = self._exchange(gradients, check_finite=(fit is None or fit.checks_finite) and not scaled)
            # Weigh: make these the gradients of a mean over this rank's rows.
            share = context.traced.share
            if context.calls.current is not None:
                gradients = context.weighing.weighed(gradients)
            else:
                gradients, share = self._slices.of_update(gradients)
            # Exchange: sum them over the ranks, by their rows. Update: all ranks apply the same gradients.
            with context.noise.alike():
                return apply(exchange(gradients, share))
        finally:
            self.applying = False

    @contextlib.contextmanager
    def deferred(self) -> Iterator[list[DeferredUpdate]]:
        """Collect the updates of a step that is traced for XLA, which cannot compile an exchange."""
        updates: list[DeferredUpdate] = []
        self._deferred = updates
        try:
            yield updates
        finally:
            self._deferred = None

    def _exchange(self, gradients: Sequence[Gradient], check_finite: bool) -> GradientExchange:
        """What sums the gradients. Eager steps share one, which keeps the residuals of compression."""
        if self._context.config.compression is None or not tf.executing_eagerly():  # a graph keeps what it has traced
            return overlap.exchange(self._context.rank, check_finite)
        shapes = tuple(None if gradient is None else (tuple(gradient.shape), gradient.dtype) for gradient in gradients)
        key = check_finite, shapes
        if key not in self._eager_exchanges:
            self._eager_exchanges[key] = overlap.exchange(self._context.rank, check_finite)
        return self._eager_exchanges[key]
