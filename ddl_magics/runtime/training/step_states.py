"""Variables that a step sets beside the weights: restored after a step without rows, and reported if ranks differ."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence, Tuple

import tensorflow as tf

from ..gradients.batch import Share
from ..gradients.metric_sums import parts_of
from ..keras_types import Batch, Model, Tensor, Variable
from ..trial import depends_on_rows, recorded_assignments, set_alike
from ..trial.python_state import PythonState
from ..trial.without_effects import without_effects
from .job_gradients import JobGradients
from .keras_access import KerasAccess
from .step_context import StepContext

_OWN_STATE = (
    "the variable %r is set from the rows of a batch, and each worker has a part of them, so that its value is not the "
    "one of one process: set it from ddl.all_gather(tensor), which has the rows of all workers, or use --strategy ps"
)
_OWN_UPDATE = (
    "%s changes the weight %r itself, each worker by its own rows: give the gradients to an optimizer, which has those "
    "of all workers, or use --strategy ps"
)

#: A variable of TensorFlow, and what it was assigned: None for a value of Python.
Assignment = Tuple[Variable, Tensor]


class ModelStep(NamedTuple):
    """A step of a model, and what takes part in it. function: Keras' own train_step or test_step, or the cell's."""

    context: StepContext
    gradients: JobGradients
    access: KerasAccess
    model: Model
    function: Callable[[Batch], Any]

    @property
    def name(self) -> str:
        """For messages."""
        return "%s of the model %r" % (getattr(self.function, "__name__", "a step"), type(self.model).__name__)


class SavedState(NamedTuple):
    """A variable as Keras has it, as TensorFlow has it, and its value before the step."""

    of_keras: Variable
    of_tensorflow: Variable
    value: Tensor


class StepStates:
    """The variables of one step of a model."""

    def __init__(self, step: ModelStep) -> None:
        self._context, self._gradients, self._access, self._model, self._function = step
        self._name = step.name
        self._is_reported = False
        self._set_alike: set[int] = set()  # ids of variables that all ranks set alike in an eager step

    # -- a step without rows

    def variables(self) -> list[Variable]:
        """What a step without rows must not change: states of metrics, and statistics of layers."""
        states = [variable for metric in self._model.metrics for variable in metric.variables]
        return states + self._access.statistics(self._model)

    def saved(self) -> list[SavedState]:
        states = []
        for variable in self.variables():
            value = getattr(variable, "value", variable)
            of_tensorflow = variable if callable(value) else value
            states.append(SavedState(variable, of_tensorflow, tf.identity(of_tensorflow)))
        return states

    def restore_without_rows(self, share: Share, states: Sequence[SavedState], assigned: Sequence[Assignment]) -> None:
        """Give the variables their values of before the step, if this rank had no row in it."""
        whole_metrics = self._context.metric_sums.variables_of_gathered()
        counters = self._counters(states, assigned)
        restored = [state for state in states if id(state.of_keras) not in whole_metrics | counters]

        def restore() -> Tensor:
            for state in restored:
                state.of_tensorflow.assign(state.value)
            return tf.constant(0)

        tf.cond(share.rows > 0, lambda: tf.constant(0), restore)
        if tf.executing_eagerly() and not int(share.rows):
            self._reset_built({id(state.of_keras) for state in states})

    def _counters(self, states: Sequence[SavedState], assigned: Sequence[Assignment]) -> set[int]:
        """The ids of variables that count steps, for example, and are no metric's: a step without rows counts, too."""
        alike = self._set_alike if tf.executing_eagerly() else set_alike(assigned)
        of_metrics = {id(variable) for metric in self._model.metrics for variable in metric.variables}
        variables = [state.of_keras for state in states]
        return {
            id(variable) for variable in variables if id(getattr(variable, "_value", variable)) in alike
        } - of_metrics

    def _reset_built(self, before: set[int]) -> None:
        """Reset the metrics that a step without rows has built. before: ids of the variables that existed before it."""
        for metric in self._model.metrics:
            for single_metric in parts_of(metric):
                is_whole = single_metric in self._context.metric_sums.gathered
                if not is_whole and not before.issuperset(map(id, single_metric.variables)):
                    single_metric.reset_state()

    # -- variables that each rank sets from its own rows

    def report(self, assigned: Sequence[Assignment], batch: Batch) -> None:
        """Warn of variables that each rank sets from its own rows.

        Raises:
            ValueError: One of them is a weight, which must be equal on all ranks.
        """
        config, eager = self._context.config, tf.executing_eagerly()
        if not config.reduces_gradients or not self._context.calls.training or (self._is_reported and eager):
            return
        self._is_reported = True
        summed = self._ids_of_summed()
        assigned = [(variable, value) for variable, value in assigned if id(variable) not in summed]
        if not assigned:
            return
        traced = self._traced_assignments(batch) if eager else assigned
        if traced is None:  # no graph shows where a value comes from
            from_rows = [variable for variable, value in assigned if value is not None]
        else:
            from_rows = [
                variable for variable, value in traced if depends_on_rows(value) and id(variable) not in summed
            ]
        for variable in {id(variable): variable for variable in from_rows}.values():
            name = variable.name.split(":")[0]
            if variable.trainable and traced is not None:
                raise ValueError(_OWN_UPDATE % (self._name, name))
            self._context.rank.reporter.notice_once("warning", _OWN_STATE % name)

    def _ids_of_summed(self) -> set[int]:
        """The ids of variables that ranks sum or average: of metrics, and of BatchNormalization, which is reported."""
        layers = list(self._model._flatten_layers())
        owners: list[Any] = [layer for layer in layers if isinstance(layer, self._access.batchnorm_class)]
        owners += [*self._model.metrics, *self._access.loss_trackers(self._model)]
        owners += [metric for layer in layers for metric in getattr(layer, "_metrics", ())]
        return {id(getattr(variable, "_value", variable)) for owner in owners for variable in owner.variables}

    def _traced_assignments(self, batch: Batch) -> list[Assignment] | None:
        """The assignments of an eager step, seen by tracing it once for nothing; None if it cannot be traced.

        Keeps in `_set_alike` which variables all ranks set alike: eager values do not show that.
        """

        def spec(tensor: Any) -> Any:
            return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype) if tf.is_tensor(tensor) else tensor

        def step(rows: Batch) -> None:
            self._context.weighing.noting(lambda: self._function(rows))

        trial = self._context.traced.state(alone=True, trial=True)
        with trial, without_effects(), PythonState([self._function, self._model]).restored():
            try:
                with recorded_assignments(lambda: not self._gradients.applying) as assigned:
                    tf.function(step, autograph=False).get_concrete_function(tf.nest.map_structure(spec, batch))
            except Exception:  # any error of a step whose tensors have no values
                return None
            self._set_alike = set_alike(assigned)
            return assigned
