"""Makes an unchanged `model.fit` distributed: the hooks that a rank puts into Keras 3 before the cell runs.

Keras is changed inside this process only, at seven places, each a small function below: where the data of a fit becomes
an iterator, where the step function is made, where the optimizer takes gradients, where an epoch's metrics become logs,
where `stop_training` is read, where a loss is reduced over its batch, and around fit, evaluate, predict and compile.
With one rank or `--strategy single` only the last is used, to report progress.
"""

import functools
import inspect
import warnings

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as tf_trainer
from keras.src.losses import loss as loss_module
from keras.src.optimizers import base_optimizer, loss_scale_optimizer
from keras.src.trainers import trainer as base_trainer

from . import files, parts, reduce, share
from .gradients import GradientExchange
from .monitor import Monitor
from .rank import StopRun
from .step import StepHook

#: A worker's part of a batch below which exchanging gradients takes longer than making them.
SMALL_SHARE_ROWS = 8


def install(context):
    """Hook Keras for `context` (a `rank.Rank`). Once a process."""
    Hooks(context).install()


class _Call:
    """A fit, evaluate or predict in progress. `shared`: its data is cut, and its metrics are the job's."""

    def __init__(self, kind, shared):
        self.kind, self.shared = kind, shared


class Hooks:
    def __init__(self, context):
        self._context = context
        self._calls = []
        context.start_training_state()

    def install(self):
        context, trainer = self._context, tf_trainer.TensorFlowTrainer
        self._wrap(trainer, "fit", self._fit)
        self._wrap(trainer, "evaluate", self._evaluate)
        self._wrap(trainer, "predict", self._predict)
        self._wrap(base_trainer.Trainer, "compile", self._compile)
        tf_trainer.TFEpochIterator = self._epoch_iterator(tf_trainer.TFEpochIterator)
        self._wrap(trainer, "_make_function", self._make_function)
        base_trainer.Trainer.stop_training = property(self._get_stop, self._set_stop)
        files.install(context)
        if context.size == 1:
            return
        self._wrap(base_trainer.Trainer, "_get_metrics_result_or_logs", self._epoch_logs)
        if context.reduces:
            self._wrap(base_optimizer.BaseOptimizer, "apply", self._apply)
            self._wrap(loss_scale_optimizer.LossScaleOptimizer, "apply", self._apply)
            loss_module.reduce_weighted_values = self._reduce_loss(loss_module.reduce_weighted_values)

    @staticmethod
    def _wrap(owner, name, wrapper):
        original = getattr(owner, name)

        @functools.wraps(original)
        def hooked(model, *args, **kwargs):
            return wrapper(original, model, *args, **kwargs)

        setattr(owner, name, hooked)

    # -- fit, evaluate, predict, compile

    def _fit(self, original, model, *args, **kwargs):
        context = self._context
        if context.stop_asked:
            raise StopRun()
        arguments = self._arguments(original, model, args, kwargs)
        arguments["callbacks"] = self._callbacks(arguments.get("callbacks"), model)
        context.begin_fit(model)
        try:
            history = self._call("fit", context.size > 1, original, model, arguments)
        finally:
            context.end_fit()
        if context.run_stop_agreed or (not context.reduces and context.stop_asked):
            raise StopRun()
        return history

    def _arguments(self, original, model, args, kwargs):
        """What a method of Keras was called with, by name. Only the chief shows progress, in lines that stay."""
        arguments = inspect.signature(original).bind(model, *args, **kwargs).arguments
        arguments.pop("self")
        arguments.update(arguments.pop("kwargs", {}))
        if not self._context.is_chief:
            arguments["verbose"] = 0
        elif arguments.get("verbose", "auto") in ("auto", 1):
            arguments["verbose"] = 2
        return arguments

    def _callbacks(self, given, model):
        context = self._context
        own = [Monitor(context)]
        if context.strategy == "ps":
            from .parameter_sync import ParameterSync

            context.sync = ParameterSync(context)
            own.insert(0, context.sync)
        if isinstance(given, keras.callbacks.CallbackList):
            for callback in own:
                callback.set_model(model)
                given.append(callback)
            return given
        users = list(given) if isinstance(given, (list, tuple)) else [given] if given is not None else []
        context.checks_finite = not any(isinstance(c, keras.callbacks.TerminateOnNaN) for c in users)
        return users + own

    def _evaluate(self, original, model, *args, **kwargs):
        context = self._context
        arguments = self._arguments(original, model, args, kwargs)
        of_fit = arguments.get("_use_cached_eval_dataset", False)
        if of_fit and context.run_stop_agreed:
            return {}  # asked to stop: the model matters now, not its score
        if of_fit and context.strategy == "ps" and context.size > 1:
            return context.sync.validate(lambda: self._call("evaluate", False, original, model, arguments))
        return self._call("evaluate", of_fit and context.size > 1, original, model, arguments)

    def _predict(self, original, model, *args, **kwargs):
        return self._call("predict", False, original, model, self._arguments(original, model, args, kwargs))

    def _call(self, kind, shared, original, model, arguments):
        self._calls.append(_Call(kind, shared))
        try:
            return original(model, **arguments)
        finally:
            self._calls.pop()

    def _compile(self, original, model, *args, **kwargs):
        arguments = inspect.signature(original).bind(model, *args, **kwargs).arguments
        arguments.pop("self")
        if self._context.reduces:
            if arguments.get("jit_compile", "auto") is True:
                warnings.warn(
                    "jit_compile=True is not used on several workers yet: gradients leave the step", stacklevel=3
                )
            arguments["jit_compile"] = False
        return original(model, **arguments)

    # -- data

    def _epoch_iterator(self, original):
        hooks = self

        class SharedEpochIterator(original):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                hooks._share(self)

        return SharedEpochIterator

    def _share(self, iterator):
        """Cut the data of the call in progress, in place."""
        context, call = self._context, self._calls[-1] if self._calls else None
        dataset = iterator._distributed_dataset
        if call is None or not isinstance(dataset, tf.data.Dataset):
            return
        local = share.is_local(dataset)
        if call.kind == "evaluate" and local and context.reduces:
            call.shared = True
        if call.kind == "predict" or (call.kind == "evaluate" and not call.shared):
            return
        validates = call.kind == "fit" and context.has_train_data
        context.has_train_data = context.has_train_data or call.kind == "fit"
        if local or context.size == 1 or (validates and context.strategy == "ps"):
            iterator._distributed_dataset = share.whole(dataset)
        elif context.strategy == "ps":
            self._shard(iterator, dataset)
        else:
            iterator._distributed_dataset = share.cut(dataset, context.rank, context.size)
            if not validates:
                self._hint_small_batch(getattr(iterator.data_adapter, "batch_size", None))

    def _hint_small_batch(self, batch):
        context = self._context
        if not context.is_chief or not batch or batch >= SMALL_SHARE_ROWS * context.size or context.hinted:
            return
        context.hinted = True
        message = "a batch of %d rows is %.3g rows a worker: they will mostly wait for each other; raise batch_size"
        context.emit("notice", level="info", message=message % (batch, batch / context.size))

    def _shard(self, iterator, dataset):
        context = self._context
        iterator._distributed_dataset = share.shard(dataset, context.rank, context.size)
        iterator.steps_per_epoch = share.shard_steps(iterator.steps_per_epoch, context.rank, context.size)
        steps = iterator.data_adapter.num_batches
        if steps is not None and steps < context.size:
            message = "%d batches an epoch cannot feed %d workers: lower the batch size or --workers"
            raise ValueError(message % (steps, context.size))
        mine = share.shard_steps(steps, context.rank, context.size)
        iterator._num_batches = mine
        reset = iterator.reset

        def reset_to_share():
            reset()
            iterator._num_batches = mine

        iterator.reset = reset_to_share

    # -- the step

    def _make_function(self, original, model, step_function):
        return original(model, StepHook(self._context, model, step_function))

    def _apply(self, original, optimizer, grads, trainable_variables=None):
        context = self._context
        if context.in_apply or tf.distribute.in_cross_replica_context():
            return original(optimizer, grads, trainable_variables)
        context.in_apply = True
        try:
            scaled = isinstance(optimizer, loss_scale_optimizer.LossScaleOptimizer)  # skips overflown steps by design
            exchange = GradientExchange(context, context.checks_finite and not scaled)
            grads = exchange(list(grads), context.share, context.loss_sums)
            return original(optimizer, grads, trainable_variables)
        finally:
            context.in_apply = False

    def _reduce_loss(self, original):
        context = self._context

        @functools.wraps(original)
        def reduce_weighted_values(values, sample_weight=None, mask=None, reduction="sum_over_batch_size", dtype=None):
            context.note_loss(reduction, weighted=sample_weight is not None, masked=mask is not None)
            return original(values, sample_weight, mask, reduction, dtype)

        return reduce_weighted_values

    # -- the ends of epochs

    def _epoch_logs(self, original, model, logs):
        context, call = self._context, self._calls[-1] if self._calls else None
        if call is None or not call.shared:
            return original(model, logs)
        training = call.kind == "fit"
        if context.strategy == "ps":
            context.sync.end_epoch(model)
            return original(model, logs)
        kind = parts.EPOCH if training else parts.EVALUATION
        reduce.sum_metrics(context, kind, model.metrics, statistics(model) if training else [])
        result = original(model, logs)
        if result is logs and logs:
            result = reduce.mean_logs(context, kind, logs)
        return result

    def _get_stop(self, model):
        context = self._context
        if context.model is model and context.reduces:
            return context.stop_agreed
        asked = model.__dict__.get("_ddl_stop", False)
        return asked or (context.model is model and (context.stop_asked or context.stop_agreed))

    def _set_stop(self, model, value):
        object.__setattr__(model, "_ddl_stop", bool(value))
        if self._context.model is model:
            self._context.stop_requested = bool(value)


def statistics(model):
    """Variables that layers keep beside their weights and that gradients do not touch: BatchNorm's moving moments."""
    found = []
    for layer in model._flatten_layers():
        for variable in layer._non_trainable_variables:
            if "float" in str(variable.dtype) and all(variable is not other for other in found):
                found.append(variable)
    return found


def differ_in_noise(model, rank):
    """Fold the rank into the seeds of dropout and noise layers, so that ranks differ there and nowhere else."""
    if not rank:
        return
    for layer in model._flatten_layers():
        for generator in getattr(layer, "_seed_generators", ()):
            state = generator.state
            if getattr(state, "_ddl_folded", False):
                continue
            seed = tf.convert_to_tensor(state)
            state.assign(seed + tf.constant([rank * 7919, 0], seed.dtype))
            object.__setattr__(state, "_ddl_folded", True)
