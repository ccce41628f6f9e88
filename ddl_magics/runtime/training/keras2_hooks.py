"""Where Keras 2 is hooked: one trainer, two generations of optimizers. keras_hooks.py says what happens there."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from keras.src.engine import base_layer_utils, compile_utils, data_adapter, training
from keras.src.layers.normalization.batch_normalization import BatchNormalizationBase
from keras.src.mixed_precision import loss_scale_optimizer
from keras.src.optimizers import optimizer
from keras.src.optimizers.legacy import optimizer_v2
from keras.src.utils import losses_utils, tf_utils

from ..gradients.masked_loss import masked
from ..keras_types import Batch, Layer, Metric, Model, Optimizer, Tensor, Variable
from ..trial import cell_code
from ..trial.patching import wrap
from ..trial.python_state import PythonState
from . import share
from .calls import TEST_BATCH, TRAIN_BATCH
from .compiled_loss import CompiledLoss
from .keras_hooks import KerasHooks

_NO_SHARE = "with Keras 2, batches are shared out among the workers that the run began with"
_READ_AHEAD = (
    "Keras 2 reads validation data from a generator ahead, and each evaluation loses the batches that it has read in "
    "vain, by chance: workers lose none, so that they evaluate other batches than one process; give validation data as "
    "arrays, a Sequence or a tf.data.Dataset"
)

_MAKES_GRADIENTS = (
    "the optimizer %s makes gradients by itself, each worker's of its own rows: what is to be done with those of the "
    "whole batch, such as to clip them, belongs into its apply_gradients"
)


class Keras2Hooks(KerasHooks):
    trainer = base_trainer = training.Model
    batchnorm_class = BatchNormalizationBase
    layer_state = "_non_trainable_weights"
    logs_method = "_validate_and_get_metrics_result"
    metrics_container, built_metrics = compile_utils.MetricsContainer, "_metrics_in_order"
    loss_scaling = (loss_scale_optimizer.LossScaleOptimizer, loss_scale_optimizer.LossScaleOptimizerV3)
    _train_data: Any = None  # the data handler of the fit in progress
    _epochs_ago = 0  # epochs of it that an earlier attempt had
    _first_batch: Any = ()  # of the generator or Sequence that Keras has made a dataset of
    _builds = False  # a step is traced for nothing, without its update

    # -- data

    def hook_data(self) -> None:
        wrap(data_adapter, "get_data_handler", self._get_data_handler)
        wrap(data_adapter, "single_batch_iterator", self._single_batch_iterator)
        for kind in (data_adapter.GeneratorDataAdapter, data_adapter.KerasSequenceAdapter):
            kind._peek_and_restore = staticmethod(functools.partial(self._peek, kind._peek_and_restore))

    def _get_data_handler(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        handler = original(*args, **kwargs)
        self._share(handler)
        return handler

    def _single_batch_iterator(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        iterator = original(*args, **kwargs)
        if self.calls.current is None:
            return iterator
        return iter(tf.data.Dataset.from_tensors(self.call_data.cut_batch(next(iterator))))

    def _peek(self, original: Callable[[Any], tuple[Any, Any]], data: Any) -> tuple[Any, Any]:
        self._first_batch, data = original(data)
        return self._first_batch, data

    def _share(self, handler: Any) -> None:
        dataset, adapter = handler._dataset, handler._adapter
        generated = isinstance(adapter, data_adapter.GeneratorDataAdapter)
        trains, fits = self.calls.begins_training_data, self.calls.training
        generated_batch = None if isinstance(self._first_batch, tuple) and not self._first_batch else self._first_batch
        self.feed.note_peeked(generated_batch)
        handler._dataset, sharded = self.call_data.shared(dataset, adapter.batch_size(), of_arrays=False)
        if fits and not trains and generated and not adapter.should_recreate_iterator() and self.config.size > 1:
            handler._dataset = share.ContinuingDataset(handler._dataset)
            self.rank.reporter.notice_once("info", _READ_AHEAD)
        if sharded and not self.rank.peers.has_share:
            raise RuntimeError(_NO_SHARE)
        counts_all = trains and handler._steps_per_epoch is not None and self.call_data.shards_steps(dataset)
        if sharded or counts_all:
            infer = handler._infer_steps
            handler._infer_steps = lambda steps, _: self.call_data.shard_steps(infer(steps, dataset))
            handler._inferred_steps = self.call_data.shard_steps(handler._inferred_steps)
        handler.steps = functools.partial(self._steps, handler.steps)
        if trains:
            self._train_data, self._epochs_ago = handler, 0
            handler.enumerate_epochs = functools.partial(self._epochs, handler, handler.enumerate_epochs)
            if generated and self.calls.fit is not None:
                batch = adapter._standardize_batch(self._first_batch)
                self.calls.fit.shapes = [np.shape(tensor) for tensor in tf.nest.flatten(batch)]
        self._first_batch = ()

    def _epochs(self, handler: Any, original: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Reads the first batch of each epoch that an earlier attempt had: with it a new order of the rows is drawn."""
        if handler._adapter.should_recreate_iterator():
            for _ in range(self._epochs_ago):
                next(iter(handler._dataset), None)
        yield from original()

    def _steps(self, original: Callable[[], Iterator[int]]) -> Iterator[int]:
        """Ends an evaluation when the run is to stop, as Keras 3 does by itself."""
        for step in original():
            yield step
            if self.rank.stop.asked and self.calls.current is not None and self.calls.current.kind == "evaluate":
                return

    # -- the step

    def hook_steps(self) -> None:
        """Keras 2 looks its steps up in the model when it traces: they are replaced while a fit or evaluation runs."""
        for method in ("fit", "evaluate", TRAIN_BATCH, TEST_BATCH):
            wrap(self.trainer, method, self._with_steps)

    def _with_steps(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        compiled = model._jit_compile if self.config.reduces_gradients else False
        with contextlib.ExitStack() as put_back:
            if compiled:  # the steps are, not what is around them
                model._jit_compile = False
                put_back.callback(setattr, model, "_jit_compile", compiled)
            for name in ("train_step", "test_step"):
                if name not in model.__dict__:
                    step = getattr(model, name)
                    compiles = compiled and self.keeps_xla(model, step)
                    hook = self.step_hook(model, step, compiles, in_xla=bool(model._jit_compile))
                    object.__setattr__(model, name, hook)
                    put_back.callback(object.__delattr__, model, name)
            return original(model, *args, **kwargs)

    def build(self, model: Model, step: Callable[[Batch], Any], batch: Batch, updates: bool) -> None:
        """By tracing the step once for nothing: only then its metrics have states that can be kept and put back.

        What is wrong with the step is said by its trial, or when it is traced again. Without `updates`, the optimizer
        is left alone: as it makes its variables in a trace, TensorFlow traces again, which steps may count in Python.
        """
        compiled = (model.compiled_loss, model.compiled_metrics)
        if not tf.executing_eagerly() and not all(container is None or container.built for container in compiled):
            self._builds = not updates
            with contextlib.suppress(Exception), PythonState([step, model]).restored():
                tf.function(step).get_concrete_function(batch)
            self._builds = False

    def logs_of_metrics(self, model: Model, logs: dict[str, Any]) -> dict[str, Any]:
        return dict(tf_utils.sync_to_numpy_or_python_type(model._validate_and_get_metrics_result(logs)))

    def logs_as_list(self, model: Model, logs: dict[str, Any]) -> Any:
        return training.flatten_metrics_in_order(logs, model.metrics_names)

    def hook_gradients(self) -> None:
        bases = (optimizer.Optimizer, optimizer_v2.OptimizerV2)
        for owner in bases + self.loss_scaling:
            wrap(owner, "apply_gradients", self.apply_gradients)
        self.hook_own_optimizers(bases, apply_gradients=self.apply_gradients)
        self.sharding.install(optimizer._BaseOptimizer)

    def apply_gradients(self, original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self._builds:
            return None
        if self.calls.current is None and self.loops.loop.distributes and cell_code.makes_gradients(optimizer):
            self.loops.loop.notice("warning", _MAKES_GRADIENTS % type(optimizer).__name__)
        return super().apply_gradients(original, optimizer, *args, **kwargs)

    def hook_losses(self) -> None:
        def apply_valid_mask(
            original: Callable[..., Any], losses: Tensor, sw: Tensor, mask: Tensor, reduction: str
        ) -> Tensor:
            weigh = functools.partial(original, losses, sw, mask)
            return masked(self.context.traced, self.context.within, weigh, mask, reduction)

        wrap(losses_utils, "apply_valid_mask", apply_valid_mask)
        wrap(compile_utils.LossesContainer, "build", self._build_losses)

    def _build_losses(self, original: Callable[..., Any], losses: Any, *args: Any, **kwargs: Any) -> None:
        original(losses, *args, **kwargs)
        losses._losses = [
            loss if loss is None else CompiledLoss(loss, self.context.batch_loss) for loss in losses._losses
        ]

    # -- a model's parts

    def weights(self, model: Model) -> list[Variable]:
        """Without the states of metrics, which count as weights of a model that has the metric for an attribute.

        And without vocabularies that layers have adapted, which are no variables: all ranks have made the same.
        """
        states = {id(variable) for metric in model.metrics for variable in metric.variables}
        return [
            variable
            for variable in model.weights
            if id(variable) not in states and not isinstance(variable, base_layer_utils.TrackableWeightHandler)
        ]

    def hook_batchnorm(self) -> None:
        wrap(BatchNormalizationBase, "build", self._build_batchnorm)
        wrap(BatchNormalizationBase, "_calculate_mean_and_var", self._moments)

    def _build_batchnorm(self, original: Callable[..., Any], layer: Layer, input_shape: Any) -> Any:
        """Fused, a layer lets nobody see its moments."""
        if self.context.batchnorm.synchronizes(layer):
            layer.fused = False
        return original(layer, input_shape)

    def _moments(
        self,
        original: Callable[..., Any],
        layer: Layer,
        inputs: Tensor,
        axes: Sequence[int],
        keep_dims: bool,
        mask: Tensor = None,
    ) -> Any:
        is_virtual_batch = keep_dims
        if is_virtual_batch or self.calls.scoring or not self.context.batchnorm.synchronizes(layer):
            return original(layer, inputs, axes, keep_dims, mask=mask)
        return self.context.batchnorm.moments(inputs, axes, mask)

    def loss_trackers(self, model: Model) -> list[Metric]:
        """All average over rows."""
        return []

    # -- a fit that is continued

    def optimizer_variables(self, model: Model) -> list[Variable]:
        variables = self.sharding.variables(model) or model.optimizer.variables
        return list(variables() if callable(variables) else variables)

    def build_all(self, model: Model) -> None:
        spec = self._train_data._dataset.element_spec
        batch = getattr(spec, "batch", spec)
        if not model.built:
            features = batch[0] if isinstance(batch, tuple) else batch
            model.build(tf.nest.map_structure(lambda tensor: tensor.shape, features))
        make = getattr(model.optimizer, "build", None) or model.optimizer._create_all_weights
        make(model.trainable_variables)

    def begin_at(self, model: Model, epoch: int | None) -> None:
        self._train_data._initial_epoch = epoch

    def release_data(self) -> None:
        self._train_data = None

    def fast_forward(
        self, first_epoch: int, epochs: int, steps: int | None, step: int, arguments: Mapping[str, Any], over: bool
    ) -> bool:
        self._epochs_ago = epochs
        return True
