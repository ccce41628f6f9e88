"""What this library needs of a Keras model, of either generation: keras2_hooks.py and keras3_hooks.py have it."""

from __future__ import annotations

import abc
import contextlib
from typing import Any, Callable, ContextManager, Mapping

from ..keras_types import Batch, Metric, Model, Variable


class KerasAccess(abc.ABC):
    """A model's parts, its steps and logs, and how a fit is continued where an earlier attempt was."""

    #: The class that has fit, evaluate and predict, and the one that has stop_training.
    trainer: Any
    base_trainer: Any

    #: The class whose layers may take their statistics from all ranks.
    batchnorm_class: type

    #: The attribute in which layers list variables that no gradient touches.
    layer_state: str

    #: Whether a fit can be continued within an epoch (`fast_forward`).
    resumes_within_epochs = False

    # -- a model's parts

    def weights(self, model: Model) -> list[Variable]:
        """Variables that are the same on all ranks when training begins."""
        return list(model.weights)

    @abc.abstractmethod
    def statistics(self, model: Model) -> list[Variable]:
        """Variables of layers that no gradient touches: BatchNormalization's moving moments."""

    @abc.abstractmethod
    def loss_trackers(self, model: Model) -> list[Metric]:
        """The metrics that average a compiled loss over batches instead of rows."""

    @abc.abstractmethod
    def optimizer_variables(self, model: Model) -> list[Variable]:
        """The optimizer's state: iterations, moments and the like."""

    @abc.abstractmethod
    def state_gathered(self, model: Model, is_wanted: bool) -> ContextManager[bool]:
        """In a fit, a context in which rank 0 has all of `optimizer_variables`, if it says `is_wanted`.

        All ranks that take steps together call it. Enters as `is_wanted`.
        """

    def seeds(self, model: Model) -> list[Variable]:
        """The states of the generators of dropout and noise layers."""
        return []

    # -- a step

    @abc.abstractmethod
    def build(self, model: Model, step: Callable[[Batch], Any], batch: Batch, updates: bool) -> None:
        """Create what the first call of `step` with `batch` would create: the states of metrics, for example.

        updates: also what its update would create, as XLA creates no variables.
        """

    def without_added_losses(self, model: Model) -> ContextManager[None]:
        """Hide the losses that layers have added to `model` so far in the step being traced."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def logs_of_metrics(self, model: Model, logs: dict[str, Any]) -> dict[str, Any]:
        """`logs` of a step as numbers; results that the step took from metrics are read from their states again."""

    @abc.abstractmethod
    def logs_as_list(self, model: Model, logs: dict[str, Any]) -> Any:
        """What `train_on_batch` returns for `logs` without `return_dict`."""

    def repeats(self, model: Model) -> bool:
        """Whether a training step of `model` can be made again, by fewer ranks, before its update."""
        return False

    # -- a fit that is continued

    @abc.abstractmethod
    def build_all(self, model: Model) -> None:
        """In a fit: make the variables of its model, and of its optimizer, that the first step would make."""

    @abc.abstractmethod
    def begin_at(self, model: Model, epoch: int | None) -> None:
        """Have the fit in progress, which is about to begin, begin with this epoch; None: with the one of its call."""

    @abc.abstractmethod
    def release_data(self) -> None:
        """After a fit: free its iterator over the data, which may take seconds."""

    @abc.abstractmethod
    def fast_forward(
        self, first_epoch: int, epochs: int, steps: int | None, step: int, arguments: Mapping[str, Any], over: bool
    ) -> bool:
        """Have the data of the fit in progress continue as after so many epochs of `steps`, at number `step`.

        over: The fit trains no more: what counts is the data that a later one goes on with. Returns whether each epoch
        of it is a new iteration of the dataset.

        first_epoch: of the fit; arguments: of its call, by name.
        """
