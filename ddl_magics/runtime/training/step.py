"""One training or test step on a rank's share of a batch, around Keras' own or the cell's step function.

`StepHook._on_share` is the step, phase by phase, up to its gradients; job_gradients.py exchanges and applies them.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable

import tensorflow as tf

from ..gradients.batch import Share, Whole
from ..keras_types import Batch, Model, Variable
from ..trial import cell_code, inlined_functions, recorded_assignments
from ..trial.python_state import PythonState
from .job_gradients import DeferredUpdate
from .model_trials import ModelTrials
from .python_of_worker import PythonOfWorker
from .step_losses import loss_metrics_by_rows, overrides_loss, whole_compute_loss
from .step_states import ModelStep, StepStates

NOT_COMPILED = (
    "a step is not compiled by XLA: its BatchNormalization, its masked loss or its outputs are exchanged by the "
    "workers, or its random numbers are drawn for the whole batch"
)


class _TraceAgain(Exception):
    """This trace of the step is void: trace the step again from its beginning."""


class StepHook:
    """A step function that takes a `Share`, and undoes a step without rows.

    A rank that has no row of a batch must still take part in the collectives of the step: it computes on one row of
    weight zero; afterwards its metrics and BatchNormalization statistics are restored.
    """

    def __init__(self, step: ModelStep, compiled: bool, in_xla: bool) -> None:
        """
        Args:
            compiled: XLA compiles the step up to its gradients; the exchange and the update follow outside of XLA.
            in_xla: XLA compiles all of the step.
        """
        self._context, self._gradients, self._access, self._model, self._step = step
        self._name, self._in_xla = step.name, in_xla
        self._compiled, self._run = compiled, self._run_compiled if compiled else self._step
        self._finish: list[Callable[[], Any]] = []  # of the step in progress, once it has its gradients
        access, model = self._access, self._model
        of_keras = access.trainer.train_step, access.trainer.test_step
        replaces_step = getattr(self._step, "__func__", None) not in of_keras
        self._is_of_cell = replaces_step or overrides_loss(access, model) or cell_code.keeps_metrics(model)
        self._states, self._python = StepStates(step), PythonOfWorker(step)
        self._trials = ModelTrials(step, self._is_of_cell, replaces_step)

    def __call__(self, data: Any) -> Any:
        """data: a `Share`, or a batch that was not cut."""
        with inlined_functions():
            if not self._is_timed or tf.executing_eagerly():
                return self._call(data)
            return self._context.rank.data_wait.timed_step(self._call, data, self._weights)

    @property
    def _is_timed(self) -> bool:
        """Whether the step is one of several in a call of Keras, which are timed in the graph: XLA has no clock."""
        return self._context.calls.training and _steps_per_execution(self._model) > 1 and not self._in_xla

    def _weights(self) -> list[Variable]:
        return [getattr(variable, "_value", variable) for variable in self._model.trainable_variables]

    def _call(self, data: Any) -> Any:
        context = self._context
        fit = context.calls.fit
        if isinstance(data, Whole) and fit is not None and fit.cutter is not None:
            data = context.placement.cut(fit.cutter, data)
        if not isinstance(data, Share):
            with context.traced.state(alone=True):
                return self._run(data)
        context.rows.count(data.rows, context.calls.training)
        if context.config.size == 1:
            return self._step(data.batch)
        while True:
            with contextlib.suppress(_TraceAgain), context.noise.step():
                return self._on_share(data)

    def _on_share(self, share: Share) -> Any:
        context, model, batch = self._context, self._model, share.batch
        with whole_compute_loss(context, self._access, model):
            # Try what the step does to rows, once for each kind of batch, before its first update.
            self._access.build(model, self._step, batch, updates=self._compiled)
            kinds = self._trials.kinds(batch)
            self._trials.refuse_coupled_rows(batch)
            # Save the states that a step without rows must not change.
            states = self._states.saved()
            with contextlib.ExitStack() as in_step:
                # Weigh added losses, averages and metrics, so that the ranks' steps make the step of one process.
                # The compiled loss weighs itself (gradients/batch_loss.py).
                in_step.enter_context(context.traced.step_on(share))
                in_step.enter_context(context.weighing.step(kinds, self._name, context.calls.training))
                in_step.enter_context(loss_metrics_by_rows(context, self._access, model, share))
                if self._is_of_cell:
                    for metric in model.metrics:
                        context.whole_metrics.take(metric)
                # Compute: forward pass, backward pass, and the update (job_gradients.py).
                self._finish = []
                with recorded_assignments(lambda: not self._gradients.applying) as assigned:
                    logs = self._python.watched(self._run_deferred if self._is_repeated else self._run, batch)
                # Report variables that each rank sets from its own rows.
                self._states.report(assigned, batch)
                # Undo the step on a rank without rows.
                self._states.restore_without_rows(share, states, assigned)
                for finish in self._finish:
                    finish()
        return logs

    @property
    def _is_repeated(self) -> bool:
        """Whether the step is made again when ranks come or go: all else comes before its update."""
        fit = self._context.calls.fit
        return self._context.calls.training and fit is not None and fit.repeated is not None

    def _run_deferred(self, batch: Batch) -> Any:
        if self._run != self._step:
            return self._run(batch)
        with self._gradients.deferred() as deferred:
            logs = self._step(batch)
        self._finish = [functools.partial(update.finish, update.tensors) for update in deferred]
        return logs

    def _run_compiled(self, batch: Batch) -> Any:
        """The step compiled by XLA up to its gradients; the exchange and the update follow."""
        gradients = self._gradients
        updates: list[DeferredUpdate] = []

        def step() -> tuple[Any, list[Any]]:
            with gradients.deferred() as deferred:
                logs = self._step(batch)
            updates[:] = deferred
            return logs, [update.tensors for update in updates]

        states, python = len(self._states.variables()), PythonState([self._step, self._model])
        with self._context.within.omitted() as omitted:
            compiled = tf.function(step, jit_compile=True, autograph=False).get_concrete_function()
        if omitted.occurred:
            self._context.rank.reporter.notice_once("info", NOT_COMPILED)
            self._run = self._step
            python.restore()
            raise _TraceAgain
        if len(self._states.variables()) > states:  # the trace built metrics: these were neither weighed nor saved
            python.restore()
            raise _TraceAgain
        logs, exchanged = compiled()
        self._finish = [functools.partial(update.finish, values) for update, values in zip(updates, exchanged)]
        return logs


def _steps_per_execution(model: Model) -> int:
    steps = getattr(model, "steps_per_execution", None) or getattr(model, "_steps_per_execution", None)
    with tf.init_scope():  # Keras 2 keeps a variable, which has no value in a graph
        return 1 if steps is None else int(steps)
