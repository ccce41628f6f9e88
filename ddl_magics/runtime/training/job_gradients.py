"""The update of a step: the optimizer gets the gradients of the whole job instead of this rank's.

Second half of a training step; step.py has the first.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import tensorflow as tf

from ..gradients import overlap
from ..gradients.exchange import GradientExchange
from ..gradients.flat_exchange import FlatExchange
from ..gradients.repeated_exchange import RepeatedExchange
from ..keras_types import Gradient, Tensor, Variable
from .loop_slices import LoopSlices
from .repeated_steps import RepeatedSteps
from .sharded_update import Apply, ShardedUpdate
from .step_context import StepContext


class DeferredUpdate(NamedTuple):
    """An update that a step traced for XLA leaves to the code after it.

    tensors: what the step returns for it, nested as TensorFlow allows. finish: makes the update, of their values.
    """

    tensors: Any
    finish: Callable[[Any], Any]


class JobGradients:
    """applying: the outermost optimizer is being given the job's gradients."""

    def __init__(self, context: StepContext, slices: LoopSlices) -> None:
        self._context, self._slices = context, slices
        self._deferred: list[DeferredUpdate] | None = None
        self._eager_exchanges: dict[Any, GradientExchange] = {}
        self.applying = False

    def apply(
        self,
        apply: Apply,
        gradients: Sequence[Gradient],
        scaled: bool,
        variables: Sequence[Variable],
        sharded: ShardedUpdate | None = None,
    ) -> Any:
        """Call `apply` with the job's gradients in place of this rank's `gradients`, and their variables.

        Args:
            scaled: The optimizer scales the loss and skips updates with NaN or infinite gradients.
            variables: That the gradients are of.
            sharded: The optimizer's update, if that is sharded.
        """
        context = self._context
        if self._deferred is not None:
            self._deferred.append(self._deferred_update(apply, gradients, scaled, variables, sharded))
            return None
        if self.applying or not context.config.reduces_gradients or tf.distribute.in_cross_replica_context():
            return apply(gradients, variables)
        if context.weighing.tries:
            return context.weighing.note_update(gradients)
        with self._in_update():
            # Weigh: make these the gradients of a mean over this rank's rows.
            share = context.traced.share
            if context.calls.current is not None:
                gradients = context.weighing.weighed(gradients)
            else:
                gradients, share = self._slices.of_update(gradients)
            # Exchange: sum them over the ranks, by their rows. Update: all ranks apply the same gradients.
            with context.noise.alike():
                if sharded is not None:
                    return sharded.update(apply, gradients, variables, share, self._checks_finite(scaled))
                exchange = self._exchange(gradients, scaled, variables)
                summed = exchange(gradients, share)
                if not isinstance(exchange, RepeatedExchange):
                    return apply(summed, variables)
                tensors = [tensor for tensor in tf.nest.flatten(summed, expand_composites=True) if tf.is_tensor(tensor)]
                with tf.control_dependencies(tensors):  # nothing of the update before the step is complete
                    return apply(summed, variables)

    @contextlib.contextmanager
    def _in_update(self) -> Iterator[None]:
        self.applying = True
        try:
            yield
        finally:
            self.applying = False

    @contextlib.contextmanager
    def deferred(self) -> Iterator[list[DeferredUpdate]]:
        """Collect the updates of a step that is traced for XLA, which cannot compile an exchange, or to be repeated."""
        updates: list[DeferredUpdate] = []
        self._deferred = updates
        try:
            yield updates
        finally:
            self._deferred = None

    def _deferred_update(
        self,
        apply: Apply,
        gradients: Sequence[Gradient],
        scaled: bool,
        variables: Sequence[Variable],
        sharded: ShardedUpdate | None,
    ) -> DeferredUpdate:
        """What XLA is to compile of the exchange comes before it: on a GPU, weighing and packing."""
        exchange = None if sharded else self._exchange(gradients, scaled, variables)
        if not isinstance(exchange, FlatExchange):
            return DeferredUpdate(gradients, lambda values: self.apply(apply, values, scaled, variables, sharded))
        context, flat = self._context, exchange
        share, weighed = context.traced.share, context.weighing.weighed(gradients)
        assert share is not None

        def finish(packed: Sequence[Tensor]) -> Any:
            with self._in_update(), context.noise.alike():
                return apply(flat.summed(packed, weighed, share), variables)

        return DeferredUpdate(flat.packed(weighed, share), finish)

    def _exchange(self, gradients: Sequence[Gradient], scaled: bool, variables: Sequence[Variable]) -> GradientExchange:
        """What sums the gradients. Eager steps share one, which keeps the residuals of compression."""
        rank, check_finite = self._context.rank, self._checks_finite(scaled)
        share = None if self._context.calls.current is None else self._context.traced.share
        fit = self._context.calls.fit
        if share is not None and fit is not None and fit.repeated is not None and self._context.calls.training:
            return RepeatedExchange(rank.peers, rank.errors, check_finite, self._repeated_steps)
        if self._context.config.compression is None or not tf.executing_eagerly():  # a graph keeps what it has traced
            return overlap.exchange(rank, check_finite, gradients, variables, share)
        shapes = tuple(None if gradient is None else (tuple(gradient.shape), gradient.dtype) for gradient in gradients)
        key = check_finite, shapes, type(share)
        if key not in self._eager_exchanges:
            self._eager_exchanges[key] = overlap.exchange(rank, check_finite, gradients, variables, share)
        return self._eager_exchanges[key]

    def _repeated_steps(self) -> RepeatedSteps:
        fit = self._context.calls.fit
        assert fit is not None and fit.repeated is not None
        return fit.repeated

    def _checks_finite(self, scaled: bool) -> bool:
        fit = self._context.calls.fit
        return (fit is None or fit.checks_finite) and not scaled
