"""Where Keras 3 is hooked: the trainer of its TensorFlow backend. What the hooks do is in keras_fit.py."""

import functools

import tensorflow as tf
from keras.src.backend.tensorflow import trainer as tf_trainer
from keras.src.layers.normalization.batch_normalization import BatchNormalization
from keras.src.losses import loss as loss_module
from keras.src.optimizers import base_optimizer, loss_scale_optimizer
from keras.src.trainers import compile_utils
from keras.src.trainers import trainer as base_trainer
from keras.src.trainers.data_adapters import array_data_adapter

from . import compiled_update, share
from .keras_fit import KerasHooks, float_variables, wrap
from .step import StepHook


class Keras3Hooks(KerasHooks):
    trainer, base_trainer = tf_trainer.TensorFlowTrainer, base_trainer.Trainer
    batchnorm_class = BatchNormalization
    begins_in_epochs = True
    _train_data = None  # the iterator of the fit in progress

    def hook_data(self):
        hooks = self

        class SharedEpochIterator(tf_trainer.TFEpochIterator):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.skipped_steps = 0
                trains = hooks.training and not hooks.context.has_train_data
                if trains:
                    hooks._train_data = self
                batch = getattr(self.data_adapter, "batch_size", None)
                of_arrays = isinstance(self.data_adapter, array_data_adapter.ArrayDataAdapter)
                goes_on = trains and hooks.randomness_goes_on(self._distributed_dataset)
                self._distributed_dataset, sharded = hooks.shared(self._distributed_dataset, batch, of_arrays)
                self.goes_on = goes_on and self._can_go_on(sharded)
                if self.goes_on:
                    self._distributed_dataset = share.GoingOn(self._distributed_dataset)
                if sharded:
                    hooks._shorten(self)

            def _can_go_on(self, sharded):
                """Whether every rank knows where an epoch ends, and calls of several steps end there."""
                count, together = self.data_adapter.num_batches, self.steps_per_execution
                of_each = together * (hooks.context.size if sharded and together > 1 else 1)
                return bool(count) and not self.steps_per_epoch and count % of_each == 0

            def __iter__(self):
                super().__iter__()
                skipped, self.skipped_steps = self.skipped_steps, 0
                for _ in range(0, skipped, self.steps_per_execution):
                    hooks.read(next(self)[-1], self.steps_per_execution)
                return self

        tf_trainer.TFEpochIterator = SharedEpochIterator

    def _shorten(self, iterator):
        """Have an epoch end with this rank's share of its batches."""
        context = self.context
        iterator.steps_per_epoch = share.shard_steps(iterator.steps_per_epoch, context.rank, context.size)
        iterator._num_batches = mine = self.shard_steps(iterator.data_adapter.num_batches)
        reset = iterator.reset

        def reset_to_share():
            reset()
            iterator._num_batches = mine

        iterator.reset = reset_to_share

    def hook_steps(self):
        wrap(self.trainer, "_make_function", self._make_function)

    def _make_function(self, original, model, step):
        compiled = model.jit_compile
        if not compiled or not self.context.reduces:
            return original(model, StepHook(self, model, step))
        model.jit_compile = False  # for what is around the step
        try:
            return original(model, StepHook(self, model, step, self.keeps_xla(model, step)))
        finally:
            model.jit_compile = compiled

    def hook_epoch_logs(self):
        wrap(self.base_trainer, "_get_metrics_result_or_logs", self.epoch_logs)

    def hook_gradients(self):
        for owner in (base_optimizer.BaseOptimizer, loss_scale_optimizer.LossScaleOptimizer):
            wrap(owner, "apply", self._apply)

    def _apply(self, original, optimizer, grads, trainable_variables=None):
        def apply(gradients):
            return original(optimizer, gradients, trainable_variables)

        def apply_compiled(gradients):
            variables = trainable_variables if trainable_variables is not None else optimizer._trainable_variables
            return compiled_update.apply(apply, optimizer, gradients, variables)

        scaled = isinstance(optimizer, loss_scale_optimizer.LossScaleOptimizer)
        if not scaled and not self.context.in_apply:
            return self.apply_reduced(apply_compiled, list(grads), scaled)
        return self.apply_reduced(apply, list(grads), scaled)

    def hook_losses(self):
        original, mask_out = loss_module.reduce_weighted_values, loss_module.apply_mask

        @functools.wraps(original)
        def reduce_weighted_values(values, sample_weight=None, mask=None, reduction="sum_over_batch_size", dtype=None):
            self.context.note_loss(reduction, weighted=sample_weight is not None)
            return original(values, sample_weight, mask, reduction, dtype)

        @functools.wraps(mask_out)
        def apply_mask(sample_weight, mask, dtype, reduction):
            return self.masked(functools.partial(mask_out, sample_weight, mask, dtype), mask, reduction)

        loss_module.reduce_weighted_values, loss_module.apply_mask = reduce_weighted_values, apply_mask
        wrap(compile_utils.CompileLoss, "call", self.compiled_loss)

    def hook_batchnorm(self):
        wrap(BatchNormalization, "_moments", self._moments)

    def _moments(self, original, layer, inputs, mask):
        if self.scoring or not self.batchnorm.synchronizes(layer):
            return original(layer, inputs, mask)
        slack = self.keras.backend.epsilon() if mask is not None else 0.0
        return self.batchnorm.moments(inputs, layer._reduction_axes, mask, slack)

    def statistics(self, model):
        layers = [layer for layer in model._flatten_layers() if not self.batchnorm.synchronizes(layer)]
        return float_variables(layers, "_non_trainable_variables")

    def loss_trackers(self, model):
        """One for each output, which Keras averages over batches, and the total's."""
        outputs = getattr(getattr(model, "_compile_loss", None), "metrics", ())
        total = getattr(model, "_loss_tracker", None)
        return [(metric, True) for metric in outputs] + ([(total, False)] if total is not None else [])

    def differ_in_noise(self, model):
        rank = self.context.rank
        if not rank:
            return
        for state in self.seeds(model):
            if getattr(state, "_ddl_folded", False):
                continue
            seed = tf.convert_to_tensor(state)
            state.assign(seed + tf.constant([rank * 7919, 0], seed.dtype))
            object.__setattr__(state, "_ddl_folded", True)

    # -- an attempt that goes on

    def seeds(self, model):
        found = {}
        for layer in model._flatten_layers():
            for generator in getattr(layer, "_seed_generators", ()):
                found[id(generator.state)] = generator.state
        return list(found.values())

    def noise_restored(self, model):
        for state in self.seeds(model):
            object.__setattr__(state, "_ddl_folded", False)

    def optimizer_variables(self, model):
        return list(model.optimizer.variables)

    def build_all(self, model):
        spec = self._train_data._distributed_dataset.element_spec
        model._symbolic_build(data_batch=getattr(spec, "batch", spec))

    def begin_at(self, model, epoch):
        model._initial_epoch = epoch

    def forward(self, epochs, steps, step):
        """A new order of the rows is drawn when an epoch's first batch is read; the others are left unread.

        Data that goes on from epoch to epoch, as with steps_per_epoch, is all read.
        """
        data = self._train_data
        goes_on = data.steps_per_epoch or data.goes_on
        for _ in range(epochs):
            with data.catch_stop_iteration():
                for first, *_, batches in data._enumerate_iterator():
                    if goes_on or not first:
                        self.read(batches, data.steps_per_execution if goes_on else 1)
                    if data.num_batches is None:
                        break
            if not data.steps_per_epoch:
                data._num_batches = data._num_batches or steps
        data.skipped_steps = step

    @staticmethod
    def read(batches, count):
        for _ in range(count):
            next(batches)
