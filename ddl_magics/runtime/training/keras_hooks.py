"""Hooks in Keras, of either generation, that make an unchanged `model.fit` distributed.

Keras is changed inside this process only. Where the hooked places are in Keras 3 is in keras3_hooks.py, in Keras 2 in
keras2_hooks.py. What happens at them: fit_calls.py around fit, evaluate and predict; call_data.py where data becomes an
iterator; step.py in a step; job_gradients.py where the optimizer gets gradients; job_logs.py where metrics become logs;
cell_loops.py in loops of the cell's own. With one rank or `--strategy single` the hooks report only.
"""

from __future__ import annotations

import abc
import warnings
from types import ModuleType
from typing import Any, Callable, ContextManager, Sequence

import numpy as np
import tensorflow as tf

from ..keras_types import Batch, Gradient, Layer, Metric, Model, Optimizer, Variable, is_of_keras
from ..rank.rank import Rank
from ..trial.patching import wrap
from . import files, metric_shapes
from .call_data import CallData
from .calls import TEST_BATCH, TRAIN_BATCH
from .cell_loops import CellLoops
from .chief_feed import ChiefFeed
from .fit_callbacks import FitCallbacks
from .fit_calls import FitCalls
from .job_gradients import JobGradients
from .job_logs import JobLogs
from .keras_access import KerasAccess
from .sharded_optimizers import ShardedOptimizers
from .share_use import ShareUse
from .step import StepHook
from .step_context import StepContext
from .step_states import ModelStep


class KerasHooks(KerasAccess):
    """What both generations of Keras have in common. A subclass says where the places are. keras: the package.

    loss_scaling: the classes of optimizers that scale the loss in their `apply_gradients`. logs_method: of models,
    makes the logs at the end of an epoch or an evaluation. metrics_container: the class of compiled metrics,
    built_metrics: its attribute with them.
    """

    logs_method: str
    metrics_container: type
    built_metrics: str
    loss_scaling: tuple[type, ...] = ()

    def __init__(self, rank: Rank, keras: ModuleType) -> None:
        self.rank, self.config, self.keras = rank, rank.config, keras
        self.context = StepContext.of_rank(rank, keras.layers.Layer, self.batchnorm_class)
        self.calls = self.context.calls
        self.feed = ChiefFeed(rank)
        self.call_data = CallData(rank, self.calls, keras.layers.RNN, self.feed, self.context.placement)
        self.loops = CellLoops(self.context, self, self.feed)
        self.gradients = JobGradients(self.context, self.loops.slices)
        self.sharding = ShardedOptimizers(self.context, keras.layers.Embedding)
        self.job_logs = JobLogs(self.context, self, self.loops.equal_weights)
        callbacks = FitCallbacks(self.context, self, self.job_logs, keras)
        self._fits = FitCalls(self.context, self, self.loops, self.call_data, callbacks, self.feed, self.sharding)
        rank.training = self.loops
        rank.at_cell_end += [self.loops.loop.finish, self.sharding.end_cell]

    def install(self) -> None:
        wrap(self.trainer, "fit", self._fits.fit)
        wrap(self.trainer, "evaluate", self._fits.evaluate)
        wrap(self.trainer, "predict", self._fits.predict)
        wrap(self.trainer, TRAIN_BATCH, self._fits.train_on_batch)
        wrap(self.trainer, TEST_BATCH, self._fits.test_on_batch)
        self.base_trainer.stop_training = self._fits.stop_training()
        files.install(self.rank.files.paths, self.keras)
        self.rank.data_wait.install()
        if self.config.manifest is not None:
            ShareUse(self.rank, self.calls, self.loops.loop).install(self.keras, self.trainer)
        wrap(self.metrics_container, "build", metric_shapes.build_noted)
        self.hook_data()
        self.hook_steps()
        if self.config.size > 1:
            wrap(self.base_trainer, self.logs_method, self.job_logs.epoch_logs)
            self.context.noise.install(self.keras.layers.Layer)
        if self.config.reduces_gradients or self.config.size == 1:
            self.hook_gradients()
        if self.config.reduces_gradients:
            self.hook_losses()
            wrap(self.keras.losses.Loss, "__call__", self.loops.note_loss)
            wrap(self.metrics_container, "build", self._build_metrics)
            wrap(self.keras.layers.Layer, "add_loss", self._add_loss)
            for kind in (self.keras.metrics.Mean, self.keras.metrics.Sum):
                wrap(kind, "update_state", self._average)
            self.hook_batchnorm()
            self.context.lengths.install()
        elif self.config.local_updates and self.config.size > 1:
            wrap(self.metrics_container, "build", self._build_metrics)

    # -- of each generation

    @abc.abstractmethod
    def hook_data(self) -> None:
        """Where a dataset of a call in progress becomes an iterator, put `call_data.shared`'s in its place."""

    @abc.abstractmethod
    def hook_steps(self) -> None:
        """Have the steps of training and testing made through `step_hook`."""

    @abc.abstractmethod
    def hook_gradients(self) -> None:
        """Have the gradients of all optimizers pass through `gradients.apply`."""

    @abc.abstractmethod
    def hook_losses(self) -> None:
        """Weigh masks of losses with `masked_loss.masked`, and call compiled losses through `context.batch_loss`."""

    @abc.abstractmethod
    def hook_batchnorm(self) -> None:
        """Have the layers that `context.batchnorm` synchronizes take their moments from it, except in evaluations."""

    def state_gathered(self, model: Model, is_wanted: bool) -> ContextManager[bool]:
        return self.sharding.gathered(model, is_wanted)

    # -- a step

    def statistics(self, model: Model) -> list[Variable]:
        layers = [layer for layer in model._flatten_layers() if not self.context.batchnorm.synchronizes(layer)]
        variables = [variable for layer in layers for variable in getattr(layer, self.layer_state)]
        return list({id(variable): variable for variable in variables if "float" in _dtype(variable)}.values())

    def step_hook(
        self, model: Model, step: Callable[[Batch], Any], compiled: bool = False, in_xla: bool = False
    ) -> StepHook:
        """The function that takes the place of `step`. The arguments are those of `StepHook`."""
        return StepHook(ModelStep(self.context, self.gradients, self, model, step), compiled, in_xla)

    def keeps_xla(self, model: Model, step: Callable[..., Any]) -> bool:
        """Whether `step`, of a model that is compiled by XLA, can be: a training step must be Keras' own.

        XLA cannot compile the exchange of gradients. Keras' own step ends with it, so that it can follow the compiled
        code; a step of the cell may use its results.
        """
        training = step == model.train_step
        if not training or getattr(step, "__func__", None) is self.trainer.train_step:
            return True
        warnings.warn(
            "a train_step of your own is not compiled by XLA on several workers: gradients leave it", stacklevel=2
        )
        return False

    def note_update(self, variables: Sequence[Variable]) -> None:
        """An optimizer is about to update `variables`. Called in a trace, too."""
        if not self.gradients.applying:
            self.loops.note_update(variables)

    def apply_gradients(
        self, original: Callable[..., Any], optimizer: Optimizer, grads_and_vars: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """In place of the method of an optimizer: it gets the job's gradients."""
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        self.note_update(variables)

        def apply(gradients: Sequence[Gradient], variables: Sequence[Variable]) -> Any:
            return original(optimizer, list(zip(gradients, variables)), *args, **kwargs)

        gradients, scaled = [gradient for gradient, _ in pairs], isinstance(optimizer, self.loss_scaling)
        return self.gradients.apply(apply, gradients, scaled, variables, self.sharding.built(optimizer, variables))

    def hook_own_optimizers(self, bases: Sequence[type], **hooks: Callable[..., Any]) -> None:
        """Hook methods that an optimizer class of the cell overrides, as Keras' own are hooked.

        A class becomes known when its first object is made.

        Args:
            hooks: Wrappers by the name of the method.
        """
        hooked: set[type] = set()

        def init(original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            for kind in type(optimizer).__mro__:
                if kind not in hooked and not is_of_keras(kind):
                    hooked.add(kind)
                    for name in hooks.keys() & vars(kind).keys():
                        wrap(kind, name, hooks[name])
            original(optimizer, *args, **kwargs)

        for base in bases:
            wrap(base, "__init__", init)

    # -- losses, metrics and averages within a step

    def _build_metrics(self, original: Callable[..., Any], metrics: Any, *args: Any, **kwargs: Any) -> None:
        original(metrics, *args, **kwargs)
        for metric in getattr(metrics, self.built_metrics):
            self.context.whole_metrics.take(metric)

    def _add_loss(self, original: Callable[..., Any], layer: Layer, loss: Any, *args: Any, **kwargs: Any) -> Any:
        def weighed(value: Any) -> Any:
            return self.context.weighing.added(layer.name, value) if tf.is_tensor(value) else value

        return original(layer, tf.nest.map_structure(weighed, loss), *args, **kwargs)

    def _average(
        self, original: Callable[..., Any], metric: Metric, values: Any, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        """Update a mean or a sum; a scalar, as a train_step of the cell averages it, is weighed by rows."""
        is_average = type(metric) in (self.keras.metrics.Mean, self.keras.metrics.Sum)
        if is_average and _is_scalar(values) and (sample_weight is None or _is_scalar(sample_weight)):
            values, sample_weight = self.context.weighing.averaged(metric.name, values, sample_weight)
        return original(metric, values, sample_weight, **kwargs)


def _dtype(variable: Any) -> str:
    """Empty for a vocabulary that a layer of Keras 2 lists among its variables."""
    return str(getattr(variable, "dtype", ""))


def _is_scalar(value: Any) -> bool:
    return value.shape.rank == 0 if tf.is_tensor(value) else isinstance(value, (int, float, np.number))
