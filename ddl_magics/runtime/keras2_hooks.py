"""Where Keras 2 is hooked: its one trainer, two generations of optimizers. What the hooks do is in keras_fit.py."""

import contextlib
import functools

import tensorflow as tf
from keras.src import backend
from keras.src.engine import compile_utils, data_adapter, training
from keras.src.layers.normalization.batch_normalization import BatchNormalizationBase
from keras.src.mixed_precision import loss_scale_optimizer
from keras.src.optimizers import optimizer
from keras.src.optimizers.legacy import optimizer_v2
from keras.src.utils import losses_utils

from .keras_fit import KerasHooks, float_variables, wrap
from .step import StepHook

_LOSS_SCALING = (loss_scale_optimizer.LossScaleOptimizer, loss_scale_optimizer.LossScaleOptimizerV3)


class Keras2Hooks(KerasHooks):
    trainer = base_trainer = training.Model
    batchnorm_class = BatchNormalizationBase

    def install(self):
        super().install()
        if self.context.rank:
            wrap(backend.RandomGenerator, "make_legacy_seed", self._legacy_seed)
            wrap(backend.RandomGenerator, "_create_seed", self._generator_seed)

    # -- data

    def hook_data(self):
        original = data_adapter.get_data_handler

        @functools.wraps(original)
        def get_data_handler(*args, **kwargs):
            handler = original(*args, **kwargs)
            self._share(handler)
            return handler

        data_adapter.get_data_handler = get_data_handler

    def _share(self, handler):
        given = handler._dataset
        trains = self.training and not self.context.has_train_data
        handler._dataset, sharded = self.shared(given, handler._adapter.batch_size(), of_arrays=False)
        if sharded:
            infer = handler._infer_steps
            handler._infer_steps = lambda steps, _: self.shard_steps(infer(steps, given))
            handler._inferred_steps = self.shard_steps(handler._inferred_steps)
        handler.steps = functools.partial(self._steps, handler.steps)
        if trains:
            self._train_data, self._epochs_ago = handler, 0
            handler.enumerate_epochs = functools.partial(self._epochs, handler, handler.enumerate_epochs)

    def _epochs(self, handler, original):
        """Reads the first batch of each epoch that an earlier attempt had: with it a new order of the rows is drawn."""
        if handler._adapter.should_recreate_iterator():
            for _ in range(self._epochs_ago):
                next(iter(handler._dataset), None)
        yield from original()

    def _steps(self, original):
        """Ends an evaluation when the run is to stop, as Keras 3 does by itself."""
        for step in original():
            yield step
            if self.context.stop_asked and self._current.kind == "evaluate":
                return

    # -- the step

    def hook_steps(self):
        """Keras 2 looks its steps up in the model when it traces: they are replaced while a fit or evaluation runs."""
        for method in ("fit", "evaluate"):
            wrap(self.trainer, method, self._with_steps)

    def _with_steps(self, original, model, *args, **kwargs):
        compiled = model._jit_compile if self.context.reduces else False
        with contextlib.ExitStack() as put_back:
            if compiled:  # the steps are, not what is around them
                model._jit_compile = False
                put_back.callback(setattr, model, "_jit_compile", compiled)
            for name in ("train_step", "test_step"):
                if name not in model.__dict__:
                    step = getattr(model, name)
                    hook = StepHook(self, model, step, compiled and self.keeps_xla(model, step))
                    object.__setattr__(model, name, hook)
                    put_back.callback(object.__delattr__, model, name)
            return original(model, *args, **kwargs)

    def build(self, model, step, batch):
        """By tracing the step once for nothing: only then its metrics have states that can be kept and put back."""
        compiled = (model.compiled_loss, model.compiled_metrics)
        if not tf.executing_eagerly() and not all(part is None or part.built for part in compiled):
            tf.function(step).get_concrete_function(batch)

    def hook_gradients(self):
        for owner in (optimizer.Optimizer, optimizer_v2.OptimizerV2) + _LOSS_SCALING:
            wrap(owner, "apply_gradients", self._apply_gradients)

    def _apply_gradients(self, original, optimizer, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)

        def apply(gradients):
            return original(optimizer, list(zip(gradients, [one for _, one in pairs])), *args, **kwargs)

        return self.apply_reduced(apply, [gradient for gradient, _ in pairs], isinstance(optimizer, _LOSS_SCALING))

    def hook_losses(self):
        """Of the functions that a loss ends with, the first uses the mask, and the second is not for metrics too."""
        mask_out, reduce = losses_utils.apply_valid_mask, losses_utils.compute_weighted_loss

        @functools.wraps(mask_out)
        def apply_valid_mask(losses, sw, mask, reduction):
            return self.masked(functools.partial(mask_out, losses, sw, mask), mask, reduction)

        @functools.wraps(reduce)
        def compute_weighted_loss(losses, sample_weight=None, reduction="sum_over_batch_size", name=None):
            kind = "sum_over_batch_size" if reduction == "auto" else reduction
            self.context.note_loss(kind, weighted=False)
            return reduce(losses, sample_weight, reduction, name)

        losses_utils.apply_valid_mask, losses_utils.compute_weighted_loss = apply_valid_mask, compute_weighted_loss
        wrap(compile_utils.LossesContainer, "__call__", self.compiled_loss)

    def hook_epoch_logs(self):
        wrap(self.trainer, "_validate_and_get_metrics_result", self.epoch_logs)

    # -- a model's parts

    def weights(self, model):
        """Without the states of metrics, which count as weights of a model that has the metric for an attribute."""
        states = {id(variable) for metric in model.metrics for variable in metric.variables}
        return [variable for variable in model.weights if id(variable) not in states]

    def hook_batchnorm(self):
        wrap(BatchNormalizationBase, "build", self._build_batchnorm)
        wrap(BatchNormalizationBase, "_calculate_mean_and_var", self._moments)

    def _build_batchnorm(self, original, layer, input_shape):
        """Fused, a layer lets nobody see its moments."""
        if self.batchnorm.synchronizes(layer):
            layer.fused = False
        return original(layer, input_shape)

    def _moments(self, original, layer, inputs, axes, keep_dims, mask=None):
        if keep_dims or self.scoring or not self.batchnorm.synchronizes(layer):  # keep_dims: of virtual batches
            return original(layer, inputs, axes, keep_dims, mask=mask)
        return self.batchnorm.moments(inputs, axes, mask)

    def statistics(self, model):
        layers = [layer for layer in model._flatten_layers() if not self.batchnorm.synchronizes(layer)]
        return float_variables(layers, "_non_trainable_weights")

    def loss_trackers(self, model):
        """All count rows."""
        losses = model.compiled_loss
        if losses is None:
            return []
        outputs = tf.nest.flatten(losses._per_output_metrics) if losses.built else []
        return [(metric, False) for metric in [losses._total_loss_mean, *outputs] if metric is not None]

    # -- an attempt that goes on

    def optimizer_variables(self, model):
        variables = model.optimizer.variables
        return list(variables() if callable(variables) else variables)

    def build_all(self, model):
        spec = self._train_data._dataset.element_spec
        batch = getattr(spec, "batch", spec)
        if not model.built:
            features = batch[0] if isinstance(batch, tuple) else batch
            model.build(tf.nest.map_structure(lambda one: one.shape, features))
        make = getattr(model.optimizer, "build", None) or model.optimizer._create_all_weights
        make(model.trainable_variables)

    def begin_at(self, model, epoch):
        self._train_data._initial_epoch = epoch

    def forward(self, epochs, steps, step):
        self._epochs_ago = epochs

    # -- noise: layers make their seeds when they are first used, so the rank is folded in there

    def _legacy_seed(self, original, generator):
        seed = original(generator)
        if seed is None:
            seed = tf.compat.v1.get_seed(None)[1]  # what TensorFlow would have given the operation
        return seed if seed is None else seed + self._fold

    def _generator_seed(self, original, generator, given):
        seed = original(generator, given)
        return seed + self._fold if generator._rng_type == generator.RNG_STATEFUL else seed

    @property
    def _fold(self):
        return self.context.rank * 7919
