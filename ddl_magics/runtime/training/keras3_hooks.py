"""Where Keras 3 is hooked: the trainer of its TensorFlow backend. keras_hooks.py says what happens there."""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any, Callable, Iterator, Mapping, Sequence

import tensorflow as tf
from keras.src.backend.tensorflow import trainer as tf_trainer
from keras.src.layers.normalization.batch_normalization import BatchNormalization
from keras.src.losses import loss as loss_module
from keras.src.optimizers import base_optimizer, loss_scale_optimizer
from keras.src.trainers import compile_utils
from keras.src.trainers import trainer as base_trainer
from keras.src.trainers.data_adapters import array_data_adapter, data_adapter_utils, tf_dataset_adapter
from keras.src.trainers.epoch_iterator import EpochIterator

from ..gradients.batch import Whole
from ..gradients.flat_exchange import FlatGradients
from ..gradients.masked_loss import masked
from ..keras_types import Batch, Gradient, Layer, Metric, Model, Optimizer, Tensor, Variable
from ..trial.patching import wrap
from . import compiled_update, share
from .compiled_loss import CompiledLoss
from .epoch_shares import EpochShares
from .keras_hooks import KerasHooks

_UNKNOWN_LENGTH = (
    "TensorFlow does not know how many batches this data has: plain Keras counts one step more at the end of the first "
    "epoch, as Adam and schedules see, and workers do not; both are equal with "
    "dataset.apply(tf.data.experimental.assert_cardinality(n)) behind the pipeline"
)


class Keras3Hooks(KerasHooks):
    trainer, base_trainer = tf_trainer.TensorFlowTrainer, base_trainer.Trainer
    batchnorm_class = BatchNormalization
    layer_state = "_non_trainable_variables"
    logs_method = "_get_metrics_result_or_logs"
    metrics_container, built_metrics = compile_utils.CompileMetrics, "metrics"
    resumes_within_epochs = True
    _train_data: Any = None  # the iterator of the fit in progress
    #: Of the function that is called: id of an optimizer -> its iterations.
    _compiled_counts: dict[int, Variable] | None = None
    _seeded_by_cell = False

    def install(self) -> None:
        wrap(tf.random, "set_seed", self._set_seed)
        wrap(data_adapter_utils, "get_tensor_spec", self._get_tensor_spec)
        super().install()

    # -- data

    def _set_seed(self, original: Callable[[Any], None], seed: Any) -> None:
        self._seeded_by_cell = True
        original(seed)

    def _get_tensor_spec(self, original: Callable[[Any], Any], batches: Any) -> Any:
        """Keras has read `batches` from a generator or PyDataset that it makes a dataset of."""
        self.feed.note_peeked(batches)
        return original(batches)

    def _keeps_drawing(self, dataset: Any) -> bool:
        """Whether the random operations of a fit's `dataset` continue from epoch to epoch, as without a seed.

        Where the cell has set TensorFlow's seed they begin anew, as in one process that has done so. Workers with
        updates of their own would then have the same batches in every epoch, and never see the others.
        """
        unseeded = self.config.local_updates or not self._seeded_by_cell
        return unseeded and isinstance(dataset, tf.data.Dataset) and share.is_random(dataset)

    def hook_data(self) -> None:
        hooks = self

        class SharedEpochIterator(tf_trainer.TFEpochIterator):
            _distributed_dataset: Any
            steps_per_epoch: int | None

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                hooks.feed.note_peeked(None)
                super().__init__(*args, **kwargs)
                self.skipped_steps = 0
                trains = hooks.calls.begins_training_data
                if trains:
                    hooks._train_data = self
                batch = getattr(self.data_adapter, "batch_size", None)
                of_arrays = isinstance(self.data_adapter, array_data_adapter.ArrayDataAdapter)
                dataset = self._distributed_dataset
                keeps_drawing = trains and hooks._keeps_drawing(dataset)
                can_begin_anew = of_arrays or isinstance(self.data_adapter, tf_dataset_adapter.TFDatasetAdapter)
                each_epoch = can_begin_anew and not keeps_drawing and not self.steps_per_epoch
                drawn = None
                if of_arrays and keeps_drawing and not self.steps_per_epoch and self.steps_per_execution == 1:
                    drawn = self.data_adapter.num_batches
                self._distributed_dataset, self.sharded = hooks.call_data.shared(
                    dataset, batch, of_arrays, each_epoch, drawn
                )
                exact = hooks.config.reduces_gradients and hooks.config.size > 1
                if trains and exact and not self.steps_per_epoch and self.data_adapter.num_batches is None:
                    hooks.rank.reporter.notice_once("info", _UNKNOWN_LENGTH)
                self.continues = keeps_drawing and self._can_continue()
                if self.continues and not isinstance(self._distributed_dataset, EpochShares):
                    self._distributed_dataset = share.ContinuingDataset(self._distributed_dataset.repeat())
                if self.sharded or (trains and hooks.call_data.shards_steps(dataset)):
                    self.steps_per_epoch = hooks.call_data.shard_steps(self.steps_per_epoch)
                if self.sharded:
                    self._share_out()

            def _share_out(self) -> None:
                """Have an epoch end with this rank's share of its batches."""
                self._num_batches = hooks.call_data.shard_steps(self.data_adapter.num_batches)

            def reset(self) -> None:
                super().reset()
                if self.sharded:
                    self._share_out()

            def _can_continue(self) -> bool:
                """Whether every rank knows where an epoch ends, and calls of several steps end there."""
                count, together = self.data_adapter.num_batches, self.steps_per_execution
                of_each = together * (hooks.rank.peers.place[1] if self.sharded and together > 1 else 1)
                return bool(count) and not self.steps_per_epoch and count % of_each == 0

            def _interrupted_warning(self) -> None:
                if not (self.sharded and self._num_batches == 0):  # no share of this epoch
                    super()._interrupted_warning()

            def __iter__(self) -> Any:
                super().__iter__()
                if self.sharded and hooks.calls.fit is not None and hooks.calls.fit.shares_epochs:
                    self._share_out()
                if isinstance(self._distributed_dataset, EpochShares):
                    self._distributed_dataset.begin_epoch()
                skipped, self.skipped_steps = self.skipped_steps, 0
                for _ in range(0, skipped, self.steps_per_execution):
                    hooks.read(next(self)[-1], self.steps_per_execution)
                return self

        tf_trainer.TFEpochIterator = SharedEpochIterator

    # -- the step

    def hook_steps(self) -> None:
        wrap(self.trainer, "_make_function", self._make_function)

    def _make_function(self, original: Callable[..., Any], model: Model, step: Callable[[Batch], Any]) -> Any:
        compiled = model.jit_compile
        if not compiled or not self.config.reduces_gradients:
            function = original(model, self.step_hook(model, step, in_xla=bool(compiled)))
            return self._takes_single_batches(function, bool(compiled))
        model.jit_compile = False  # for what is around the step
        try:
            function = original(model, self.step_hook(model, step, compiled=self.keeps_xla(model, step)))
            return self._takes_single_batches(function, compiled=True)
        finally:
            model.jit_compile = compiled

    def repeats(self, model: Model) -> bool:
        """Keras' own step, a function of one batch."""
        own_step = getattr(model.train_step, "__func__", None) is self.trainer.train_step
        return own_step and not model.run_eagerly and model.steps_per_execution == 1

    def _repeating(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`function` of an iterator, which is made again when ranks come or go."""
        if self.rank.peers.regrouping is None:
            return function

        @functools.wraps(function)
        def repeating(iterator: Any) -> Any:
            fit = self.calls.fit
            if fit is None or fit.repeated is None or not self.calls.training:
                return function(iterator)
            return fit.repeated.step(function, iterator)

        return repeating

    def build(self, model: Model, step: Callable[[Batch], Any], batch: Batch, updates: bool) -> None:
        """Nothing: Keras 3 has built all before it traces a step."""

    def _takes_single_batches(self, function: Callable[[Any], Any], compiled: bool) -> Callable[[Any], Any]:
        """A function of an iterator, which is not one of tf.data where it has the batch of a `train_on_batch`."""
        counts: dict[int, Variable] = {}
        function = self._repeating(function)

        @functools.wraps(function)
        def cutting(iterator: Any) -> Any:
            single = not isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator))
            self._compiled_counts = None if compiled else counts
            try:
                return function(map(self.call_data.cut_batch, iterator) if single else iterator)
            except tf.errors.OutOfRangeError:
                # In a graph of Keras that XLA does not compile, the step that finds no batch is counted, too.
                for iterations in counts.values():
                    iterations.assign_add(1)
                raise
            finally:
                self._compiled_counts = None

        return cutting

    def logs_of_metrics(self, model: Model, logs: dict[str, Any]) -> dict[str, Any]:
        return dict(model._get_metrics_result_or_logs(logs))

    def logs_as_list(self, model: Model, logs: dict[str, Any]) -> Any:
        return model._flatten_metrics_in_order(logs)

    def hook_gradients(self) -> None:
        for owner in (base_optimizer.BaseOptimizer, loss_scale_optimizer.LossScaleOptimizer):
            wrap(owner, "apply", self._apply)
        hooks = {"apply": self._apply_of_cell, "apply_gradients": self.apply_gradients}
        self.hook_own_optimizers([base_optimizer.BaseOptimizer], **hooks)
        self.sharding.install(base_optimizer.BaseOptimizer)

    def _apply_of_cell(
        self, original: Callable[..., Any], optimizer: Optimizer, grads: Sequence[Gradient], *args: Any, **kwargs: Any
    ) -> Any:
        variables = args[0] if args else kwargs.get("trainable_variables")
        updated = list(variables or optimizer._trainable_variables)
        self.note_update(updated)

        def apply(gradients: Sequence[Gradient], _: Sequence[Variable]) -> Any:
            return original(optimizer, list(gradients), *args, **kwargs)

        return self.gradients.apply(apply, list(grads), False, updated)

    def _apply(
        self,
        original: Callable[..., Any],
        optimizer: Optimizer,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> Any:
        def apply(gradients: Sequence[Gradient], variables: Sequence[Variable]) -> Any:
            return original(optimizer, list(gradients), variables)

        def apply_compiled(gradients: Sequence[Gradient], variables: Sequence[Variable]) -> Any:
            if scaled and not isinstance(gradients, FlatGradients):
                return apply(gradients, variables)
            return compiled_update.apply(apply, optimizer, gradients, variables, self._compiled_counts)

        updated = list(trainable_variables or optimizer._trainable_variables)
        self.note_update(updated)
        if not self.config.reduces_gradients:
            return apply(grads, updated)
        scaled = isinstance(optimizer, loss_scale_optimizer.LossScaleOptimizer)
        apply_as = apply if self.gradients.applying else apply_compiled
        return self.gradients.apply(apply_as, list(grads), scaled, updated, self.sharding.built(optimizer, updated))

    def hook_losses(self) -> None:
        def apply_mask(
            original: Callable[..., Any], sample_weight: Tensor, mask: Tensor, dtype: Any, reduction: str
        ) -> Tensor:
            weigh = functools.partial(original, sample_weight, mask, dtype)
            return masked(self.context.traced, self.context.within, weigh, mask, reduction)

        wrap(loss_module, "apply_mask", apply_mask)
        wrap(compile_utils.CompileLoss, "build", self._build_losses)

    @contextlib.contextmanager
    def without_added_losses(self, model: Model) -> Iterator[None]:
        added = [(layer._losses, list(layer._losses)) for layer in model._flatten_layers()]
        for current, _ in added:
            current.clear()
        try:
            yield
        finally:
            for current, before in added:
                current[:] = before

    def _build_losses(self, original: Callable[..., Any], losses: Any, *args: Any, **kwargs: Any) -> None:
        original(losses, *args, **kwargs)
        batch_loss = self.context.batch_loss
        losses._flat_losses = [flat._replace(loss=CompiledLoss(flat.loss, batch_loss)) for flat in losses._flat_losses]

    # -- a model's parts

    def hook_batchnorm(self) -> None:
        wrap(BatchNormalization, "_moments", self._moments)

    def _moments(self, original: Callable[..., Any], layer: Layer, inputs: Tensor, mask: Tensor | None) -> Any:
        if self.calls.scoring or not self.context.batchnorm.synchronizes(layer):
            return original(layer, inputs, mask)
        slack = self.keras.backend.epsilon() if mask is not None else 0.0
        return self.context.batchnorm.moments(inputs, layer._reduction_axes, mask, slack)

    def loss_trackers(self, model: Model) -> list[Metric]:
        """One for each output."""
        return list(getattr(getattr(model, "_compile_loss", None), "metrics", ()))

    # -- a fit that is continued

    def seeds(self, model: Model) -> list[Variable]:
        states = {}
        for layer in model._flatten_layers():
            for generator in getattr(layer, "_seed_generators", ()):
                states[id(generator.state)] = generator.state
        return list(states.values())

    def optimizer_variables(self, model: Model) -> list[Variable]:
        return self.sharding.variables(model) or list(model.optimizer.variables)

    def build_all(self, model: Model) -> None:
        spec, fit = self._train_data._distributed_dataset.element_spec, self.calls.fit
        if isinstance(spec, Whole) and fit is not None and fit.cutter is not None:
            spec = self.context.placement.spec(fit.cutter, spec)
        model._symbolic_build(data_batch=getattr(spec, "batch", spec))

    def begin_at(self, model: Model, epoch: int | None) -> None:
        model._initial_epoch = epoch

    def release_data(self) -> None:
        self._train_data = None

    def fast_forward(
        self, first_epoch: int, epochs: int, steps: int | None, step: int, arguments: Mapping[str, Any], over: bool
    ) -> bool:
        """A new order of the rows is drawn when an epoch's first batch is read; the others are left unread.

        It is drawn by a shuffle, which the data of the validation may have in common with that of the training. Data
        that continues from epoch to epoch, as with steps_per_epoch, is all read. Of a fit that is over, only the order
        of a dataset goes on with the next one.
        """
        data, validation = self._train_data, _Validation(arguments)
        continues = bool(data.steps_per_epoch or (data.continues and not over))
        if over and (isinstance(arguments["x"], types.GeneratorType) or (continues and not _reorders(arguments["x"]))):
            return not continues
        if isinstance(data._distributed_dataset, EpochShares):
            data._distributed_dataset.skip(epochs)
            for epoch in range(first_epoch, first_epoch + epochs):
                validation.begin(epoch)
            return False
        for epoch in range(first_epoch, first_epoch + epochs):
            with data.catch_stop_iteration():
                for step_number, *_, batches in data._enumerate_iterator():
                    if continues or not step_number:
                        self.read(batches, data.steps_per_execution if continues else 1)
                    if data.num_batches is None:
                        break
            if not data.steps_per_epoch and not data.sharded:
                data._num_batches = data._num_batches or steps
            validation.begin(epoch)
        data.skipped_steps = step
        return not continues

    @staticmethod
    def read(batches: Any, count: int) -> None:
        for _ in range(count):
            next(batches)


def _reorders(data: Any) -> bool:
    """Whether each iteration of what a fit trains on may have another order."""
    return not isinstance(data, tf.data.Dataset) or share.reorders(data)


class _Validation:
    """Reads the dataset of a fit's validation, where it has one, as its evaluations do. arguments: of the call."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._every = arguments.get("validation_freq") or 1
        data, steps = arguments.get("validation_data"), arguments.get("validation_steps")
        self._iterator = _Batches(data, steps_per_epoch=steps) if isinstance(data, tf.data.Dataset) else None

    def begin(self, epoch: int) -> None:
        """Read the first batch of the validation of an epoch, if that has one."""
        number, every = epoch + 1, self._every
        if self._iterator is not None and (number % every == 0 if isinstance(every, int) else number in every):
            for step_number, *_, batches in self._iterator._enumerate_iterator():
                if not step_number:
                    next(batches, None)
                if self._iterator.num_batches is None:
                    break


class _Batches(EpochIterator):
    def _get_iterator(self) -> Any:
        return self.data_adapter.get_tf_dataset()
