"""Which optimizers have their update sharded over the ranks: --shard-optimizer."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Sequence

import numpy as np
import tensorflow as tf

from ..collectives.announcement import CHECKPOINT
from ..keras_types import Layer, Model, Optimizer, Variable, is_of_keras
from .sharded_update import ShardedUpdate, WholeState, refusal, states_of
from .step_context import StepContext

YES, NO = "yes", "no"

#: By itself, an update is sharded if it spares the workers so many bytes: weights times workers, less the weights. See
#: benchmarks/sharded_update.py.
LEAST_BYTES = 96 << 20


class ShardedOptimizers:
    """Those of a rank."""

    def __init__(self, context: StepContext, embedding_class: Any) -> None:
        self._context, self._embedding_class = context, embedding_class
        self._updates: dict[int, ShardedUpdate] = {}  # by the id of the optimizer

    def of(self, optimizer: Optimizer) -> ShardedUpdate | None:
        """The update of an optimizer, if that is sharded."""
        return self._updates.get(id(optimizer))

    def built(self, optimizer: Optimizer, variables: Sequence[Variable]) -> ShardedUpdate | None:
        """As `of`, of an optimizer that is about to update `variables`, and is built if it is not.

        Where ranks come and go, a step may end before the graph has given a variable that it makes its first value.
        """
        if "build" in vars(optimizer) or (self._context.rank.peers.regrouping is not None and not optimizer.built):
            with tf.init_scope():
                optimizer.build(list(variables))
        return self.of(optimizer)

    def install(self, optimizer_class: Any) -> None:
        """After a fit, optimizers have the variables of one process for code of the cell."""
        own: property = optimizer_class.variables

        def variables(optimizer: Optimizer) -> Any:
            update = None if self._context.calls.fit is not None else self.of(optimizer)
            return own.__get__(optimizer) if update is None or update.kept is None else update.whole_variables()

        optimizer_class.variables = property(variables)

    def begin_fit(self, model: Model, callbacks: Sequence[Any]) -> None:
        """Before a fit with these callbacks of the cell: its optimizer is sharded when it is built, or not."""
        config, optimizer = self._context.config, getattr(model, "optimizer", None)
        asked = config.spec.shard_optimizer
        if optimizer is None or asked == NO or not config.reduces_gradients or config.size == 1 or config.regroups:
            return
        update = self.of(optimizer)
        if update is not None:
            update.keep(None)
            return
        reason = self._refusal(optimizer, callbacks)
        if reason:
            self._leave_out(optimizer, reason)
            return
        object.__setattr__(optimizer, "build", lambda variables: self._build(model, optimizer, callbacks, variables))

    def _leave_out(self, optimizer: Optimizer, reason: str) -> None:
        if self._context.config.spec.shard_optimizer == YES:
            message = "--shard-optimizer is left out: %s %s"
            self._context.rank.reporter.notice_once("warning", message % (type(optimizer).__name__, reason))

    def _refusal(self, optimizer: Optimizer, callbacks: Sequence[Any]) -> str:
        reason = refusal(optimizer)
        if not reason and getattr(optimizer, "built", getattr(optimizer, "_built", False)):
            reason = "has a state already"
        if not reason and any(type(callback).__name__ == "SwapEMAWeights" for callback in callbacks):
            reason = "has moving averages that SwapEMAWeights swaps"
        return reason

    def _build(
        self, model: Model, optimizer: Optimizer, callbacks: Sequence[Any], variables: Sequence[Variable]
    ) -> None:
        object.__delattr__(optimizer, "build")
        layers = list(model._flatten_layers())
        if self._context.config.spec.shard_optimizer != YES and not self._pays(optimizer, layers, callbacks, variables):
            optimizer.build(variables)
            return
        if not states_of(optimizer, variables):  # and without variables of its own its step is traced once
            optimizer.build(variables)
            self._leave_out(optimizer, "has no state")
            return
        looked_up = [layer for layer in layers if isinstance(layer, self._embedding_class)]
        whole_ids = {id(variable) for layer in looked_up for variable in layer.trainable_variables}
        self._updates[id(optimizer)] = ShardedUpdate(self._context.rank, optimizer, list(variables), whole_ids)

    def _pays(
        self, optimizer: Optimizer, layers: Sequence[Layer], callbacks: Sequence[Any], variables: Sequence[Variable]
    ) -> bool:
        """Whether it is sure to be right, as all code is Keras' own, faster, and spares memory, if there is a state."""
        collective = self._context.rank.peers.collective
        return (
            not collective.crosses_network
            and all(is_of_keras(type(part)) for part in [*layers, *callbacks])
            and (collective.size - 1) * sum(map(_bytes, variables)) >= LEAST_BYTES
        )

    def variables(self, model: Model) -> list[WholeState] | None:
        """The variables of a model's optimizer as one process has them; None if it is not sharded."""
        update = self.of(model.optimizer)
        return None if update is None else update.whole_variables()

    def end_fit(self, model: Model) -> None:
        """Gather the state after a fit: the cell may save the model on one rank alone."""
        update = self.of(getattr(model, "optimizer", None))
        if update is not None:
            update.keep(update.gather())

    def end_cell(self) -> None:
        """Gather what a cell has changed since: rank 0 alone sends its models."""
        for update in self._updates.values():
            if update.kept is None:
                update.keep(update.gather())

    @contextlib.contextmanager
    def gathered(self, model: Model, is_wanted: bool) -> Iterator[bool]:
        """In a fit, whether rank 0 wants the optimizer's state: then it can have it in this context.

        All ranks call it. is_wanted: of rank 0.
        """
        peers, update = self._context.rank.peers, self.of(model.optimizer)
        if update is None:
            yield is_wanted
            return
        wanted = np.array([is_wanted], np.int64)
        peers.collective.broadcast(wanted, peers.announcement(CHECKPOINT))
        if wanted[0]:
            arrays = update.gather()
            update.keep(arrays if self._context.config.is_chief else None)
        yield is_wanted
        update.keep(None)


def _bytes(variable: Variable) -> int:
    return int(tf.as_dtype(variable.dtype).size * np.prod(variable.shape))
