"""The callbacks of a fit: the cell's, and around them those of the runtime."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable, Sequence

import tensorflow as tf

from ..rank.regrouping import Regrouping
from . import batch_logs
from .checkpointing import FitCheckpoints
from .fit_in_progress import FitInProgress
from .fit_reporter import FitReporter
from .job_logs import JobLogs
from .keras_access import KerasAccess
from .membership import Membership
from .parameter_sync import ParameterSync
from .repeated_steps import RepeatedSteps
from .ring_sync import RingSync
from .step_context import StepContext


class FitCallbacks:
    def __init__(self, context: StepContext, access: KerasAccess, logs: JobLogs, keras: ModuleType) -> None:
        self._context, self._access, self._logs, self._keras = context, access, logs, keras

    def of_fit(self, fit: FitInProgress, checkpoints: FitCheckpoints, argument: Any, more: list[Any]) -> Any:
        """What `fit` gets as callbacks.

        Args:
            argument: What the cell has passed: callbacks, a `CallbackList`, or None.
            more: The last ones of the runtime.
        """
        config, peers = self._context.config, self._context.rank.peers
        is_list = isinstance(argument, self._keras.callbacks.CallbackList)
        callbacks = of_cell(argument)
        of_runtime: list[Any] = [
            checkpoints.before,
            *self._changing(fit, functools.partial(checkpoints.state_for_newcomers, fit.model), checkpoints.counted),
            *self._syncing(fit),
            FitReporter(self._context.rank, fit, self._context.rows, self._access),
            checkpoints.after,
            *more,
        ]
        if config.reduces_gradients:
            if any(map(batch_logs.are_read_by, callbacks)):
                of_runtime.insert(0, batch_logs.AgreedStop(peers))
            makers = self._logs.at_batches(fit, callbacks)
            for maker in makers:
                maker.set_model(fit.model)
            (argument.callbacks if is_list else callbacks)[:0] = makers
        if is_list:
            for callback in of_runtime:
                callback.set_model(fit.model)
                argument.append(callback)
            argument._should_call_train_batch_hooks = True  # Keras 2 has looked through the list already
            argument._should_call_test_batch_hooks = True
            return argument
        fit.checks_finite = not any(
            isinstance(callback, self._keras.callbacks.TerminateOnNaN) for callback in callbacks
        )
        return callbacks + of_runtime

    def of_progress(self, arguments: dict[str, Any]) -> list[Any]:
        """Callbacks in place of Keras' own, with the lines of verbose=2 of the rank that is the chief by then.

        arguments: of the fit; their "verbose" is 0 afterwards.
        """
        is_shown = arguments.get("verbose", "auto") != 0
        arguments["verbose"] = 0
        peers = self._context.rank.peers

        class Progress(self._keras.callbacks.ProgbarLogger):  # type: ignore[name-defined]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.verbose = 2 if peers.is_chief else 0
                super().on_epoch_begin(epoch, logs)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.progbar.verbose = 2 if peers.is_chief else 0
                super().on_epoch_end(epoch, logs)

        return [Progress()] if is_shown else []

    def of_rehearsal(self, fit: FitInProgress) -> list[Any]:
        """Those of a fit of one step, which no other rank sees."""
        return self._changing(fit, lambda counted: ({}, {}), [])

    def _changing(self, fit: FitInProgress, state: Callable[..., Any], counted: Sequence[Any]) -> list[Any]:
        """A callback that has a fit go on when ranks come or go, if they do, and if it can.

        state, counted: as `Membership` and its `begin` have them.
        """
        context, regrouping = self._context, self._context.rank.peers.regrouping
        if regrouping is None:
            return []

        make_membership = functools.partial(self._membership, fit, regrouping, state)

        class Changing(self._keras.callbacks.Callback):  # type: ignore[name-defined]
            def on_train_begin(self, logs: Any = None) -> None:
                context.placement.update()
                fit.membership = make_membership()
                if fit.membership is not None:
                    fit.membership.begin(counted)
                if fit.checkpoints is not None:
                    fit.checkpoints.membership = fit.membership

            def on_test_begin(self, logs: Any = None) -> None:
                if fit.membership is not None:
                    fit.membership.validates = True

            def on_test_end(self, logs: Any = None) -> None:
                if fit.membership is not None:
                    fit.membership.validates = False

        return [Changing()]

    def _membership(self, fit: FitInProgress, regrouping: Regrouping, state: Callable[..., Any]) -> Membership | None:
        context, access = self._context, self._access
        if fit.shares_epochs:
            return Membership(context.rank, regrouping, context.placement, state)
        if fit.cutter is None or not fit.validates_apart or not access.repeats(fit.model):
            return None
        parts = context.rank, regrouping, access, context.metric_sums, context.placement
        return RepeatedSteps(*parts, fit.model, state)

    def _syncing(self, fit: FitInProgress) -> list[Any]:
        """The callback that synchronizes ranks which make updates of their own, where they do."""
        rank = self._context.rank
        if not self._context.config.local_updates or not (rank.server or rank.peers.ring):
            return []
        for metric in fit.model.metrics:  # those that only a train_step of the cell uses are not built by `compile`
            self._context.whole_metrics.take(metric)
        if rank.server:
            sync = ParameterSync(rank, fit, self._access, self._context.placement)
            fit.sync, fit.validate = sync, sync.validate
        else:
            fit.sync = RingSync(rank, fit, self._access, self._context.metric_sums)
        return [fit.sync]


def of_cell(argument: Any) -> list[Any]:
    """The callbacks that a cell passes to `fit`: of a list, a `CallbackList` or None."""
    return list(argument.callbacks) if hasattr(argument, "callbacks") else tf.nest.flatten(argument or [])
