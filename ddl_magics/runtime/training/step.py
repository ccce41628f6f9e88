"""One training or test step on a rank's share of a batch, around Keras' own or the user's step function."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import tensorflow as tf

from ..gradients.batch import LocalShare, Share
from ..gradients.batch_loss import Loss, of_loss
from ..gradients.metric_sums import parts_of
from ..keras_types import Batch, Metric, Model, Tensor, Variable
from ..trial import (
    INPUT,
    OUTPUT,
    TARGET,
    WEIGHT,
    cell_code,
    depends_on_rows,
    inlined_functions,
    recorded_assignments,
    set_alike,
)
from ..trial.model_attributes import restored_attributes
from ..trial.without_effects import without_effects
from .keras_hooks import DeferredUpdate, KerasHooks
from .step_trial import Shares
from .step_weighing import Kinds

NOT_COMPILED = (
    "a step is not compiled by XLA: its BatchNormalization, its masked loss or its outputs are exchanged by the "
    "workers, or its random numbers are drawn for the whole batch"
)


_COUPLED_ROWS = (
    "the model %r couples the rows of a batch: its output for a row depends on the other rows, and workers get parts "
    "of a batch; gather the rows that its layer looks at with ddl.all_gather(tensor), or use --strategy ps"
)
_OWN_STATE = (
    "the variable %r is set from the rows of a batch, and each worker has a part of them, so that its value is not the "
    "one of one process: set it from ddl.all_gather(tensor), which has the rows of all workers, or use --strategy ps"
)
_OWN_UPDATE = (
    "%s changes the weight %r itself, each worker by its own rows: give the gradients to an optimizer, which has those "
    "of all workers, or use --strategy ps"
)


_NUMPY = (
    "%s computes with NumPy: the trial with made-up rows does not find bounds there, such as that of "
    "np.maximum(rows, 1000); it does with TensorFlow's functions"
)


class _TraceAgain(Exception):
    """The step was traced for nothing, and is to be traced from its begin."""


class StepHook:
    """A step function that takes a `Share`, and undoes a step without rows.

    A rank that has no row of a batch must still take part in its collective: it computes on one row of weight zero, and
    its metrics and BatchNormalization statistics are put back afterwards.
    """

    def __init__(
        self, hooks: KerasHooks, model: Model, step: Callable[[Batch], Any], compiled: bool = False, whole: bool = False
    ) -> None:
        """compiled: by XLA, all but the exchange of gradients and the update that follows it. whole: all of it."""
        self._in_xla = whole
        self._hooks, self._model, self._step = hooks, model, step
        self._run = self._run_compiled if compiled else step
        own_step = getattr(step, "__func__", None) not in (hooks.trainer.train_step, hooks.trainer.test_step)
        self._own = own_step or _overrides_loss(hooks, model) or cell_code.keeps_metrics(model)
        self._tried: dict[str, Kinds] = {}
        self._reported = False
        self._alike: set[int] = set()  # the variables that all ranks set alike in an eager step, by id
        self._model_is_to_be_tried = hooks.config.reduces_gradients and not own_step

    def __call__(self, data: Any) -> Any:
        """data: a `Share`, or a batch that was not cut."""
        with inlined_functions():
            if not self._is_one_of_several or tf.executing_eagerly():
                return self._call(data)
            return self._hooks.rank.data_wait.timed_step(self._call, data, self._weights)

    @property
    def _is_one_of_several(self) -> bool:
        """Whether a call of Keras makes several training steps, whose times can be taken: XLA has no clock."""
        return self._hooks.calls.training and _steps_per_execution(self._model) > 1 and not self._in_xla

    def _weights(self) -> list[Variable]:
        return [getattr(one, "_value", one) for one in self._model.trainable_variables]

    def _call(self, data: Any) -> Any:
        hooks = self._hooks
        if not isinstance(data, Share):
            with hooks.traced.state(alone=True):
                return self._run(data)
        hooks.rows.count(data.rows, hooks.calls.training)
        if hooks.config.size == 1:
            return self._step(data.batch)
        while True:
            with contextlib.suppress(_TraceAgain), hooks.noise.step():
                return self._on_share(data)

    def _on_share(self, data: Share) -> Any:
        hooks, traced = self._hooks, self._hooks.traced
        with contextlib.ExitStack() as put_back:
            for undo in self._weigh_own_loss():
                put_back.callback(undo)
            hooks.build(self._model, self._step, data.batch)
            known = self._try(data)
            self._try_model(data.batch)
            variables = self._state()
            before = [tf.identity(variable) for _, variable in variables]
            put_back.callback(traced.end)
            traced.begin(data)
            put_back.callback(hooks.weighing.end)
            hooks.weighing.begin(known, self._name, hooks.calls.training)
            for undo in self._weigh_losses(data):
                put_back.callback(undo)
            if self._own:
                for metric in self._model.metrics:
                    hooks.whole_metrics.take(metric)
            with recorded_assignments(lambda: not hooks.applying) as assigned:
                logs = self._run(data.batch)
            self._report_states(assigned, data.batch)
        kept = hooks.metric_sums.variables_of_whole() | self._counters(variables, assigned)
        changed = [(variable, value) for (own, variable), value in zip(variables, before) if id(own) not in kept]
        tf.cond(data.rows > 0, lambda: tf.constant(0), lambda: _restore(changed))
        if tf.executing_eagerly() and not int(data.rows):
            self._reset_built({id(own) for own, _ in variables})
        return logs

    def _reset_built(self, before: set[int]) -> None:
        """Reset the metrics that a step without rows has built. before: the ids of the variables that there were."""
        for metric in self._model.metrics:
            for part in parts_of(metric):
                if part not in self._hooks.metric_sums.whole and not before.issuperset(map(id, part.variables)):
                    part.reset_state()

    def _report_states(self, assigned: list[tuple[Variable, Tensor]], batch: Batch) -> None:
        """Say which variables each rank sets from its own rows. ValueError names a weight, which all have alike."""
        hooks = self._hooks
        if (
            not hooks.config.reduces_gradients
            or not hooks.calls.training
            or (self._reported and tf.executing_eagerly())
        ):
            return
        self._reported = True
        layers = list(self._model._flatten_layers())
        normalizing = [one for one in layers if isinstance(one, hooks.batchnorm_class)]  # with a notice of their own
        owners: list[Any] = [*normalizing, *self._model.metrics, *hooks.loss_trackers(self._model)]
        owners += [metric for layer in layers for metric in getattr(layer, "_metrics", ())]
        others = {id(getattr(variable, "_value", variable)) for owner in owners for variable in owner.variables}
        assigned = [(one, value) for one, value in assigned if id(one) not in others]
        shown = self._traced_assignments(batch) if assigned and tf.executing_eagerly() else assigned
        if shown is None:
            assigned = [(one, value) for one, value in assigned if value is not None]
        else:
            assigned = [(one, value) for one, value in shown if id(one) not in others and depends_on_rows(value)]
        for variable in {id(one): one for one, _ in assigned}.values():
            name = variable.name.split(":")[0]
            if variable.trainable and shown is not None:
                raise ValueError(_OWN_UPDATE % (self._name, name))
            hooks.rank.reporter.notice_once("warning", _OWN_STATE % name)

    def _traced_assignments(self, batch: Batch) -> list[tuple[Variable, Tensor]] | None:
        """What the step, which is run eagerly, would assign in a graph. None where it cannot be traced.

        Keeps in `_alike` what all ranks set alike, which eager values do not show.
        """
        hooks = self._hooks

        def spec(part: Any) -> Any:
            return tf.TensorSpec([None, *part.shape[1:]], part.dtype) if tf.is_tensor(part) else part

        def step(rows: Batch) -> None:
            hooks.weighing.noting(lambda: self._step(rows))

        with hooks.traced.state(alone=True, trial=True), without_effects(), restored_attributes(self._model):
            try:
                with recorded_assignments(lambda: not hooks.applying) as assigned:
                    tf.function(step, autograph=False).get_concrete_function(tf.nest.map_structure(spec, batch))
            except Exception:  # whatever a step raises where tensors have no values
                return None
            self._alike = set_alike(assigned)
            return assigned

    @property
    def _name(self) -> str:
        step = getattr(self._step, "__name__", "a step")
        return "%s of the model %r" % (step, type(self._model).__name__)

    def _try(self, data: Share) -> Kinds | None:
        """What the step does to rows. None where it is Keras' own, whose losses are tried one by one."""
        hooks, batch = self._hooks, data.batch
        model = self._model
        tried = (
            self._own or cell_code.adds_losses(model) or cell_code.makes_gradients(getattr(model, "optimizer", None))
        )
        if not hooks.config.reduces_gradients or not tried:
            return None
        key = str(tf.nest.map_structure(lambda part: None if part is None else (part.dtype, part.shape[1:]), batch))
        if key not in self._tried:
            if tf.executing_eagerly() and cell_code.uses_numpy(self._step):
                hooks.rank.reporter.notice_once("warning", _NUMPY % self._name)
            self._tried[key] = hooks.trial(self._model, self._step, batch, self._shares(batch))
        return self._tried[key]

    def _shares(self, batch: Batch) -> Shares:
        fit, size, rows = self._hooks.calls.fit, self._hooks.config.size, _static_rows(batch)
        if fit is None:
            return Shares(rows, size, rows * size)
        return Shares(rows, size, rows * size or fit.batch, fit.shapes)

    def _try_model(self, batch: Batch) -> None:
        """ValueError for a model whose output for a row depends on others; once, before the first step of a fit."""
        has_layers = any(True for _ in self._model._flatten_layers(include_self=False))
        if not self._model_is_to_be_tried or (has_layers and not self._model.built):
            return
        self._model_is_to_be_tried = False
        trial = self._hooks.trial
        if cell_code.has_code_of_the_cell(self._model) and trial.couples_rows(self._model, batch, self._shares(batch)):
            raise ValueError(_COUPLED_ROWS % type(self._model).__name__)

    def _run_compiled(self, batch: Batch) -> Any:
        """The step compiled by XLA up to its gradients; they are exchanged, and applied, after it."""
        hooks = self._hooks
        deferred: list[DeferredUpdate] = []

        def step() -> tuple[Any, list[Any]]:
            hooks.deferred_updates, hooks.within.for_xla = [], True
            try:
                logs = self._step(batch)
                deferred[:] = hooks.deferred_updates
            finally:
                hooks.deferred_updates, hooks.within.for_xla = None, False
            return logs, [update.gradients for update in deferred]

        hooks.within.left_out, states = False, len(self._state())
        compiled = tf.function(step, jit_compile=True, autograph=False).get_concrete_function()
        if hooks.within.left_out:
            hooks.rank.reporter.notice_once("info", NOT_COMPILED)
            self._run = self._step
            raise _TraceAgain
        if len(self._state()) > states:  # metrics were built, which were not weighed and could not be put back
            raise _TraceAgain
        logs, exchanged = compiled()
        for update, gradients in zip(deferred, exchanged):
            hooks.apply_reduced(update.apply, gradients, update.scaled)
        return logs

    def _state(self) -> list[tuple[Variable, Variable]]:
        """What a step without rows must not change: variables as Keras has them, and as TensorFlow has."""
        states = [variable for metric in self._model.metrics for variable in metric.variables]
        found = []
        for variable in states + self._hooks.statistics(self._model):
            value = getattr(variable, "value", variable)
            found.append((variable, variable if callable(value) else value))
        return found

    def _counters(
        self, variables: list[tuple[Variable, Variable]], assigned: list[tuple[Variable, Tensor]]
    ) -> set[int]:
        """The ids of those that count steps, for example, and no metric's: a step without rows changes them as any."""
        alike = self._alike if tf.executing_eagerly() else set_alike(assigned)
        states = {id(one) for metric in self._model.metrics for one in metric.variables}
        return {id(own) for own, _ in variables if id(getattr(own, "_value", own)) in alike} - states

    def _weigh_own_loss(self) -> list[Callable[[], None]]:
        """Have a `compute_loss` of the cell computed as a loss of the whole batch. Returns functions that undo it."""
        hooks, model = self._hooks, self._model
        if not hooks.config.reduces_gradients or not _overrides_loss(hooks, model):
            return []
        original, roles = model.compute_loss, (INPUT, TARGET, OUTPUT, WEIGHT)
        name = "compute_loss of the model %r" % type(model).__name__

        def compute_loss(
            x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, *args: Any, **kwargs: Any
        ) -> Tensor:
            def loss(x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
                alone = hooks.traced.trial and hooks.traced.factor is None  # not as part of a step that is tried
                with hooks.without_added_losses(model, alone):
                    return original(x, y, y_pred, sample_weight, *args, **kwargs)

            arguments = of_loss((x, y, y_pred, sample_weight), roles)
            return hooks.batch_loss(Loss(loss, name, model, scales=False), arguments)

        return [_replace(model, "compute_loss", compute_loss)]

    def _weigh_losses(self, data: Share) -> list[Callable[[], None]]:
        """Have the metrics that average losses over batches count this rank's share. Returns functions that undo it."""
        hooks = self._hooks
        trackers = hooks.loss_trackers(self._model)
        if not trackers:
            return []
        rows, total = tf.cast(data.rows, tf.float64), self._rows_of_batch(data)

        def of_batches(value: Tensor, weight: Any) -> tuple[Tensor, Tensor]:
            return value, rows / total if weight is None else rows  # Keras gives the number of rows where it knows it

        return [_change_update(metric, of_batches) for metric in trackers]

    def _rows_of_batch(self, data: Share) -> Tensor:
        """Those of all ranks in this step, at least 1 of them; a float64 scalar."""
        hooks = self._hooks
        if isinstance(data, LocalShare) and hooks.config.reduces_gradients and hooks.calls.training:
            own = tf.cast(data.rows, tf.float64)
            return tf.maximum(hooks.within.total(own, hooks.within.number()), 1.0)
        total = tf.cast(data.total, tf.float64)
        return tf.where(total < 0, tf.cast(data.rows, tf.float64) * hooks.config.size, total)


def _steps_per_execution(model: Model) -> int:
    given = getattr(model, "steps_per_execution", None) or getattr(model, "_steps_per_execution", None)
    with tf.init_scope():  # Keras 2 has a variable, whose value a graph has not
        return 1 if given is None else int(given)


def _overrides_loss(hooks: KerasHooks, model: Model) -> bool:
    return getattr(type(model), "compute_loss", None) is not getattr(hooks.base_trainer, "compute_loss", None)


def _static_rows(batch: Batch) -> int:
    """The rows that each batch of a rank has; 0 where these may differ."""
    first = next((part for part in tf.nest.flatten(batch) if tf.is_tensor(part) and part.shape.rank), None)
    return 0 if first is None else int(first.shape[0] or 0)


def _replace(model: Model, name: str, method: Callable[..., Any]) -> Callable[[], None]:
    """Give a model a method of its own, until the function that is returned is called."""
    own = model.__dict__.get(name)
    object.__setattr__(model, name, method)

    def undo() -> None:
        if own is None:
            object.__delattr__(model, name)
        else:
            object.__setattr__(model, name, own)

    return undo


def _change_update(metric: Metric, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[], None]:
    """Pass what `metric` is updated with through `change`, until the function that is returned is called."""
    original, own = metric.update_state, metric.__dict__.get("update_state")

    def update_state(value: Tensor, sample_weight: Tensor = None) -> Tensor:
        value, weight = change(value, sample_weight)
        return original(value, sample_weight=weight)

    def undo() -> None:
        if own is None:
            object.__delattr__(metric, "update_state")
        else:  # Keras 2 keeps one in each metric
            object.__setattr__(metric, "update_state", own)

    object.__setattr__(metric, "update_state", update_state)
    return undo


def _restore(changed: list[tuple[Variable, Tensor]]) -> Tensor:
    for variable, value in changed:
        variable.assign(value)
    return tf.constant(0)
