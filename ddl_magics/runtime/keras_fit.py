"""Makes an unchanged `model.fit` distributed: what a rank does at its hooks in Keras, before the cell runs.

Keras is changed inside this process only: where the data of a fit becomes an iterator, where a step is made, where the
optimizer takes gradients, where an epoch's metrics become logs, where `stop_training` is read, where a loss is reduced
over its batch, and around fit, evaluate and predict. Where these places are in Keras 3 is in keras3_hooks.py,
in Keras 2 in keras2_hooks.py; what happens there is here. With one rank or `--strategy single` the hooks report only.
"""

import functools
import inspect
import warnings

import tensorflow as tf

from . import files, masked_loss, overlap, parts, reduce, share
from .checkpointing import Checkpoints
from .monitor import Monitor
from .rank import StopRun
from .sync_batchnorm import SyncBatchNorm
from .within_step import WithinStep

#: A worker's part of a batch below which exchanging gradients takes longer than making them.
SMALL_SHARE_ROWS = 8
#: The oldest Keras of either generation whose inside is as the hooks expect it, and its TensorFlow.
OLDEST = {2: ("2.13", "2.13"), 3: ("3.7", "2.16")}


def install(context):
    """Hook the Keras of this process for `context` (a `rank.Rank`). Once a process. ImportError for a too old one."""
    import keras

    check_version(keras.__version__)
    if keras.__version__.startswith("2."):
        from .keras2_hooks import Keras2Hooks as Hooks
    else:
        from .keras3_hooks import Keras3Hooks as Hooks
    context.start_training_state()
    Hooks(context, keras).install()


def check_version(version):
    """ImportError in one line for a version of Keras that the hooks do not fit."""
    major, minor = (int(number) for number in version.split(".")[:2])
    oldest, tensorflow = OLDEST[2 if major < 3 else 3]
    if (major, minor) < tuple(int(number) for number in oldest.split(".")):
        message = "this Python has Keras %s (TensorFlow %s); %s or newer, of TensorFlow %s, is needed"
        raise ImportError(message % (version, tf.__version__, oldest, tensorflow))


class _Call:
    """A fit, evaluate or predict in progress. `shared`: its data is cut, and its metrics are the job's."""

    def __init__(self, kind, shared):
        self.kind, self.shared = kind, shared


class KerasHooks:
    """What both generations of Keras have in common. A subclass says where the places are.

    context: the `rank.Rank`; keras: the package.
    """

    #: The class that has fit, evaluate and predict, and the one that has stop_training.
    trainer = base_trainer = None

    #: The class whose layers may take their statistics from all ranks.
    batchnorm_class = None

    #: Whether a fit can go on within an epoch (`forward`).
    begins_in_epochs = False

    def __init__(self, context, keras):
        self.context, self.keras = context, keras
        self._checkpoints = Checkpoints(context)
        self.within = WithinStep(self)
        self.batchnorm = SyncBatchNorm(context, self.within, self.batchnorm_class)
        self._calls = []
        self._seeded_by_cell = False
        self.put_aside = None  # while a step is traced for XLA: [(apply, gradients, scaled)] for what follows it

    def install(self):
        context = self.context
        wrap(self.trainer, "fit", self._fit)
        wrap(self.trainer, "evaluate", self._evaluate)
        wrap(self.trainer, "predict", self._predict)
        self.base_trainer.stop_training = property(self._get_stop, self._set_stop)
        files.install(context, self.keras)
        self._hook_seed()
        self.hook_data()
        self.hook_steps()
        if context.size > 1:
            self.hook_epoch_logs()
        if context.reduces:
            self.hook_gradients()
            self.hook_losses()
            self.hook_batchnorm()

    # -- of each generation: the hooks

    def hook_data(self):
        """Where a dataset of a call in progress is taken into use, put `shared`'s in its place."""
        raise NotImplementedError

    def hook_steps(self):
        """Have the steps of training and testing made through `step.StepHook`."""
        raise NotImplementedError

    def hook_epoch_logs(self):
        """Have the logs at the end of an epoch, or of an evaluation, made through `epoch_logs`."""
        raise NotImplementedError

    def hook_gradients(self):
        """Have all optimizers' gradients go through `apply_reduced`."""
        raise NotImplementedError

    def hook_losses(self):
        """Have each loss told to `context.note_loss` before it is reduced, its mask used in `masked`, and the compiled
        ones called in `compiled_loss`.
        """
        raise NotImplementedError

    def hook_batchnorm(self):
        """Have the layers that `batchnorm` synchronizes take their moments from there, but for what is only scored."""
        raise NotImplementedError

    # -- of each generation: a model's parts

    def weights(self, model):
        """Variables that are the same on all ranks when training begins."""
        return model.weights

    def statistics(self, model):
        """Variables that layers keep beside their weights and gradients do not touch: BatchNorm's moving moments."""
        raise NotImplementedError

    def loss_trackers(self, model):
        """[(metric that averages a loss, whether it counts batches instead of rows)]"""
        raise NotImplementedError

    def build(self, model, step, batch):
        """Make what `step` (a function of `batch`) would make in its first call: the states of metrics among it."""

    def differ_in_noise(self, model):
        """Fold the rank into the seeds of dropout and noise layers, so that ranks differ there and nowhere else."""

    # -- of each generation: for an attempt that goes on where an earlier one was

    def build_all(self, model):
        """In a fit: make the variables of its model, and of its optimizer, that the first step would make."""
        raise NotImplementedError

    def optimizer_variables(self, model):
        raise NotImplementedError

    def seeds(self, model):
        """The states of the generators of dropout and noise layers."""
        return []

    def noise_restored(self, model):
        """`seeds` have got the values of rank 0."""

    def begin_at(self, model, epoch):
        """Have the fit in progress, which is about to begin, begin with this epoch; None: where it was told."""
        raise NotImplementedError

    def forward(self, epochs, steps, step):
        """Have the data of the fit in progress go on as after some epochs of so many `steps`, at number `step`."""
        raise NotImplementedError

    def compiled_loss(self, original, losses, *args, **kwargs):
        """Around the call of what `compile` was given as its losses."""
        self.context.in_compiled_loss = True
        try:
            return original(losses, *args, **kwargs)
        finally:
            self.context.in_compiled_loss = False

    def masked(self, weigh, mask, reduction):
        """What entries of a loss count by their `mask`: `weigh(reduction)`, which scales them for a mean."""
        share = self.context.share
        if mask is None or share is None or reduction not in masked_loss.MEANS:
            return weigh(reduction)
        kept = weigh("sum")
        return kept * tf.cast(masked_loss.scale(self.within, share, mask), kept.dtype)

    # -- fit, evaluate, predict

    def _fit(self, original, model, *args, **kwargs):
        context = self.context
        if context.stop_asked:
            raise StopRun()
        arguments = self._arguments(original, model, args, kwargs)
        context.begin_fit(model, self)
        try:
            self.batchnorm.begin_fit(model)
            context.taken_up = taken_up = self._checkpoints.take_up(arguments)
            arguments["callbacks"] = self._callbacks(arguments.get("callbacks"), model)
            history = self._call("fit", context.size > 1, original, model, arguments)
        finally:
            context.end_fit()
        if context.run_stop_agreed or (not context.reduces and context.stop_asked):
            raise StopRun()
        taken_up.end(model, history)
        return history

    def _arguments(self, original, model, args, kwargs):
        """What a method of Keras was called with, by name. Only the chief shows progress, in lines that stay."""
        arguments = _by_name(original, model, args, kwargs)
        if not self.context.is_chief:
            arguments["verbose"] = 0
        elif arguments.get("verbose", "auto") in ("auto", 1):
            arguments["verbose"] = 2
        return arguments

    def _callbacks(self, given, model):
        context, callbacks = self.context, self.keras.callbacks
        own = [context.taken_up.before, Monitor(context), context.taken_up.after]
        if context.own_steps and (context.server or context.ring):
            context.sync = self._new_sync()
            own.insert(1, context.sync)
        if isinstance(given, callbacks.CallbackList):
            for callback in own:
                callback.set_model(model)
                given.append(callback)
            given._should_call_train_batch_hooks = True  # Keras 2 has looked through the list already
            return given
        users = list(given) if isinstance(given, (list, tuple)) else [given] if given is not None else []
        context.checks_finite = not any(isinstance(c, callbacks.TerminateOnNaN) for c in users)
        return users + own

    def _new_sync(self):
        if self.context.server:
            from .parameter_sync import ParameterSync

            return ParameterSync(self.context)
        from .ring_sync import RingSync

        return RingSync(self.context)

    def _evaluate(self, original, model, *args, **kwargs):
        context = self.context
        arguments = self._arguments(original, model, args, kwargs)
        of_fit = arguments.get("_use_cached_eval_dataset", False)
        if of_fit and context.run_stop_agreed:
            return {}  # asked to stop: the model matters now, not its score
        if of_fit and context.server and context.size > 1:
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

    @property
    def _current(self):
        return self._calls[-1] if self._calls else None

    @property
    def training(self):
        """Whether the innermost call in progress is a fit, and not its validation."""
        return self._current is not None and self._current.kind == "fit"

    @property
    def scoring(self):
        """Whether the innermost call in progress is an evaluation, a fit's validation or a prediction."""
        return self._current is not None and self._current.kind != "fit"

    # -- data

    def shared(self, dataset, batch, of_arrays):
        """What the call in progress gets instead of `dataset`: (a dataset, whether that has every n-th batch only).

        batch: rows of a batch, None where unknown; of_arrays: Keras has made the dataset of arrays.
        """
        context, call = self.context, self._current
        if call is None or not isinstance(dataset, tf.data.Dataset):
            return dataset, False
        local = share.is_local(dataset)
        if call.kind == "evaluate" and local and context.reduces:
            call.shared = True
        if call.kind == "predict" or (call.kind == "evaluate" and not call.shared):
            return dataset, False
        validates = call.kind == "fit" and context.has_train_data
        context.has_train_data = context.has_train_data or call.kind == "fit"
        if local or context.size == 1 or (validates and context.server):
            return share.whole(dataset), False
        if context.own_steps and not validates:
            return share.shard(dataset, context.rank, context.size, of_arrays), True
        if not validates:
            self._hint_small_batch(batch)
        return share.cut(dataset, context.rank, context.size, of_arrays), False

    def _hook_seed(self):
        original = tf.random.set_seed

        @functools.wraps(original)
        def set_seed(seed):
            self._seeded_by_cell = True
            original(seed)

        tf.random.set_seed = set_seed

    def randomness_goes_on(self, dataset):
        """Whether `dataset` of a fit has random operations that go on from epoch to epoch, as without a seed.

        Where the cell has set TensorFlow's they start anew, as in one process that has done so. Workers with steps of
        their own would then have the same batches in every epoch, and never see the others.
        """
        unseeded = self.context.own_steps or not self._seeded_by_cell
        return unseeded and isinstance(dataset, tf.data.Dataset) and share.is_random(dataset)

    def shard_steps(self, steps):
        """How many of an epoch's `steps` batches a dataset of every n-th has. ValueError where some rank had none."""
        if steps is not None and steps < self.context.size:
            message = "%d batches an epoch cannot feed %d workers: lower the batch size or --workers"
            raise ValueError(message % (steps, self.context.size))
        return share.shard_steps(steps, self.context.rank, self.context.size)

    def _hint_small_batch(self, batch):
        context = self.context
        if batch and batch < SMALL_SHARE_ROWS * context.size:
            message = "a batch of %d rows is %.3g rows a worker: they will mostly wait for each other; raise batch_size"
            context.tell_once("info", message % (batch, batch / context.size))

    # -- the step

    def keeps_xla(self, model, step):
        """Whether `step`, of a model that is compiled by XLA, can be: a training step must be Keras' own.

        XLA knows no exchange of gradients. Keras' own step uses them last of all, so that they can leave it first;
        what another one does after it has applied them is not known.
        """
        training = step == model.train_step
        if not training or getattr(step, "__func__", None) is self.trainer.train_step:
            return True
        warnings.warn(
            "a train_step of your own is not compiled by XLA on several workers: gradients leave it", stacklevel=2
        )
        return False

    def apply_reduced(self, apply, gradients, scaled):
        """`apply` the job's gradients in place of a rank's own. scaled: by an optimizer that skips overflown steps."""
        context = self.context
        if self.put_aside is not None:
            self.put_aside.append((apply, gradients, scaled))
            return None
        if context.in_apply or tf.distribute.in_cross_replica_context():
            return apply(gradients)
        context.in_apply = True
        try:
            exchange = overlap.exchange(context, context.checks_finite and not scaled)
            return apply(exchange(gradients, context.share, context.loss_sums))
        finally:
            context.in_apply = False

    # -- the ends of epochs

    def epoch_logs(self, original, model, logs):
        """The logs of the whole job; `original(model, logs)` makes them of the metrics' states."""
        context, call = self.context, self._current
        if call is None or not call.shared:
            return original(model, logs)
        training = call.kind == "fit"
        if training and context.own_steps:
            context.sync.end_epoch(model)
            return original(model, logs)
        kind = parts.EPOCH if training else parts.EVALUATION
        reduce.sum_metrics(context, kind, model.metrics, self.statistics(model) if training else [])
        result = original(model, logs)
        if result is logs and logs:
            result = reduce.mean_logs(context, kind, logs)
        return result

    def _get_stop(self, model):
        context = self.context
        if context.model is model and context.reduces:
            return context.stop_agreed
        asked = model.__dict__.get("_ddl_stop", False)
        return asked or (context.model is model and (context.stop_asked or context.stop_agreed))

    def _set_stop(self, model, value):
        object.__setattr__(model, "_ddl_stop", bool(value))
        if self.context.model is model:
            self.context.stop_requested = bool(value)


def wrap(owner, name, wrapper):
    """Have `wrapper(original, self, ...)` called for the method `name` of the class `owner`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def hooked(self, *args, **kwargs):
        return wrapper(original, self, *args, **kwargs)

    setattr(owner, name, hooked)


def _by_name(method, model, args, kwargs):
    """The arguments of a call of a model's method, by name."""
    arguments = inspect.signature(method).bind(model, *args, **kwargs).arguments
    arguments.pop("self")
    arguments.update(arguments.pop("kwargs", {}))
    return arguments


def float_variables(layers, attribute):
    """The variables of floating point that any of `layers` lists in `attribute`, each once."""
    found = {}
    for layer in layers:
        for variable in getattr(layer, attribute):
            if "float" in str(variable.dtype):
                found[id(variable)] = variable
    return list(found.values())
