"""What a rank does at its hooks in Keras, of either generation: they make an unchanged `model.fit` distributed.

Keras is changed inside this process only: where the data of a fit becomes an iterator, where a step is made, where the
optimizer takes gradients, where an epoch's metrics become logs, where `stop_training` is read, where a loss is reduced
over its batch, and around fit, evaluate and predict. Where these places are in Keras 3 is in keras3_hooks.py,
in Keras 2 in keras2_hooks.py; what happens there is here. With one rank or `--strategy single` the hooks report only.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import inspect
import warnings
from types import ModuleType
from typing import Any, Callable, ContextManager, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from ..collectives import announcement
from ..gradients import masked_loss, overlap, reduce
from ..gradients.batch_loss import BatchLoss
from ..gradients.exchange import GradientExchange
from ..gradients.gathering import all_gather
from ..gradients.metric_sums import MetricSums
from ..gradients.sync_batchnorm import SyncBatchNorm
from ..gradients.traced_step import TracedStep
from ..gradients.whole_metrics import WholeMetrics
from ..gradients.within_step import WithinStep
from ..keras_types import Batch, Gradient, Layer, Metric, Model, Optimizer, Tensor, Variable, is_of_keras
from ..rank.rank import Rank
from ..stopping import StopRun
from . import batch_logs, distributed, files
from .call_data import CallData
from .calls import TEST_BATCH, TRAIN_BATCH, Call, Calls
from .checkpointing import Checkpoints
from .equal_weights import EqualWeights
from .fit_in_progress import FitInProgress
from .kept_generators import KeptGenerators
from .keras_access import KerasAccess
from .loop_slices import LoopSlices
from .monitor import Monitor
from .noise import Noise
from .own_loop import OwnLoop
from .owners import owners
from .rows import RowCounter
from .step_trial import StepTrial
from .step_weighing import StepWeighing

_NOT_SHARED = (
    "%s is not distributed with --strategy %s: each worker trains on all rows for itself; use --strategy allreduce, or "
    "model.fit"
)

_GOES_ON = (
    "this fit reuses the generator of an earlier one: plain Keras drops the batches that it has read ahead, and "
    "workers drop none, so that the results may differ"
)

#: The collective that makes the metrics of a call those of the job.
_METRICS_OF = {
    "fit": announcement.EPOCH,
    "evaluate": announcement.EVALUATION,
    TRAIN_BATCH: announcement.METRICS,
    TEST_BATCH: announcement.METRICS,
}


class DeferredUpdate(NamedTuple):
    """An optimizer's update that a step traced for XLA leaves to what follows it."""

    apply: Callable[[Sequence[Gradient]], Any]
    gradients: Sequence[Gradient]
    scaled: bool


class KerasHooks(KerasAccess):
    """What both generations of Keras have in common. A subclass says where the places are.

    keras: the package. calls, data: the calls in progress, and what they get instead of their data. traced, within,
    rows, batchnorm, noise: the state of the step, and what works within it.
    """

    #: The class that has fit, evaluate and predict, and the one that has stop_training.
    trainer: Any
    base_trainer: Any

    #: The class whose layers may take their statistics from all ranks.
    batchnorm_class: type

    def __init__(self, rank: Rank, keras: ModuleType) -> None:
        self.rank, self.config, self.keras = rank, rank.config, keras
        self.traced, self.rows = TracedStep(), RowCounter()
        self.within = WithinStep(rank.peers, rank.errors, self.traced)
        self.batch_loss = BatchLoss(self.traced, self.within, rank.reporter, rank.config.spec.gather or "auto")
        self.batchnorm = SyncBatchNorm(rank.config, rank.reporter, self.traced, self.within, self.batchnorm_class)
        self.calls = Calls()
        self.data = CallData(rank, self.calls, keras.layers.RNN)
        self.loop = OwnLoop(rank, self.rows, self._average_statistics)
        self.noise = Noise(rank.config, self.traced, self.within)
        self._slices = LoopSlices(self.loop, self.traced, self.noise, rank.errors)
        self._equal_weights = EqualWeights(rank)
        self._generators = KeptGenerators()
        rank.training = self
        rank.at_cell_end.append(self.loop.end)
        self.metric_sums = MetricSums(rank.peers)
        self._checkpoints = Checkpoints(rank, self, self.metric_sums)
        apart = rank.config.local_updates
        self.whole_metrics = WholeMetrics(
            self.traced, self.within, rank.reporter, self.metric_sums, rank.config.spec.gather or "auto", apart
        )
        self.applying = False  # gradients of the job, in the outermost optimizer
        self._eager_exchanges: dict[Any, GradientExchange] = {}
        self.deferred_updates: list[DeferredUpdate] | None = None  # while a step is traced for XLA
        self.weighing = StepWeighing(self.traced, self.within, rank.reporter)
        self.trial = StepTrial(self.traced, self.weighing, keras.layers.Layer)

    def install(self) -> None:
        wrap(self.trainer, "fit", self._fit)
        wrap(self.trainer, "evaluate", self._evaluate)
        wrap(self.trainer, "predict", self._predict)
        wrap(self.trainer, TRAIN_BATCH, self._train_on_batch)
        wrap(self.trainer, TEST_BATCH, self._test_on_batch)
        self.base_trainer.stop_training = property(self._get_stop, self._set_stop)
        files.install(self.rank.files.paths, self.config, self.keras)
        self.rank.data_wait.install()
        self.hook_data()
        self.hook_steps()
        if self.config.size > 1:
            self.hook_epoch_logs()
            self.noise.install(self.keras.layers.Layer)
        if self.config.reduces_gradients or self.config.size == 1:
            self.hook_gradients()
        if self.config.reduces_gradients:
            self.hook_losses()
            wrap(self.keras.losses.Loss, "__call__", self._note_loss)
            self.hook_metrics()
            wrap(self.keras.layers.Layer, "add_loss", self._add_loss)
            for kind in (self.keras.metrics.Mean, self.keras.metrics.Sum):
                wrap(kind, "update_state", self._average)
            self.hook_batchnorm()
        elif self.config.local_updates and self.config.size > 1:
            self.hook_metrics()

    # -- of each generation: the hooks

    @abc.abstractmethod
    def hook_data(self) -> None:
        """Where a dataset of a call in progress is taken into use, put `shared`'s in its place."""

    @abc.abstractmethod
    def hook_steps(self) -> None:
        """Have the steps of training and testing made through `step.StepHook`."""

    @abc.abstractmethod
    def hook_epoch_logs(self) -> None:
        """Have the logs at the end of an epoch, or of an evaluation, made through `epoch_logs`."""

    @abc.abstractmethod
    def hook_gradients(self) -> None:
        """Have all optimizers' gradients pass through `apply_reduced`."""

    @abc.abstractmethod
    def hook_losses(self) -> None:
        """Have the masks of losses used in `masked`, and what `compile` was given as losses called by `batch_loss`."""

    @abc.abstractmethod
    def hook_metrics(self) -> None:
        """Have what `compile` was given as metrics taken by `whole_metrics` when they are built."""

    @abc.abstractmethod
    def hook_batchnorm(self) -> None:
        """Have the layers that `batchnorm` synchronizes take their moments from there, except in evaluations."""

    @abc.abstractmethod
    def logs_of_metrics(self, model: Model, logs: dict[str, Any]) -> dict[str, Any]:
        """`logs` of a step as numbers; of the states of the metrics instead, where the step has returned these."""

    @abc.abstractmethod
    def logs_as_list(self, model: Model, logs: dict[str, Any]) -> Any:
        """What `train_on_batch` returns of `logs` without `return_dict`."""

    def build(self, model: Model, step: Callable[[Batch], Any], batch: Batch) -> None:
        """Make what the first call of `step` with `batch` would make: the states of metrics among it."""

    # -- losses

    def masked(self, weigh: Callable[[str], Tensor], mask: Tensor | None, reduction: str) -> Tensor:
        """A loss' weights by its `mask`: `weigh(reduction)`, scaled for a mean over the whole batch."""
        share, traced = self.traced.share, self.traced
        if mask is None or reduction not in masked_loss.MEANS:
            return weigh(reduction)
        if traced.trial:  # the number of kept entries, which would be divided by, is put together below
            return weigh("sum")
        if share is None or traced.alone:
            return weigh(reduction)
        kept = weigh("sum")
        return kept * tf.cast(masked_loss.scale(self.within, share, mask), kept.dtype)

    def without_added_losses(self, model: Model, wanted: bool) -> ContextManager[None]:
        """Where it is wanted, the losses that layers have added to `model` in the step being traced are away."""
        return contextlib.nullcontext()

    def _add_loss(self, original: Callable[..., Any], layer: Layer, loss: Any, *args: Any, **kwargs: Any) -> Any:
        weighed = tf.nest.map_structure(lambda one: self._weighed(layer, one), loss)
        return original(layer, weighed, *args, **kwargs)

    def _weighed(self, layer: Layer, loss: Any) -> Any:
        return self.weighing.added(layer.name, loss) if tf.is_tensor(loss) else loss

    def _average(
        self, original: Callable[..., Any], metric: Metric, values: Any, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        """The update of an average or a sum: of a scalar, as train_steps of cells keep it, weighed by rows."""
        known = type(metric) in (self.keras.metrics.Mean, self.keras.metrics.Sum)
        if known and _is_scalar(values) and (sample_weight is None or _is_scalar(sample_weight)):
            values, sample_weight = self.weighing.averaged(metric.name, values, sample_weight)
        return original(metric, values, sample_weight, **kwargs)

    def all_gather(self, tensor: Tensor) -> Tensor:
        """`ddl.all_gather` of the cell."""
        call = self.calls.current
        if not self.config.reduces_gradients or (call is not None and call.kind == "predict"):
            return tensor
        return all_gather(self.within, self.traced, tf.convert_to_tensor(tensor))

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """While it lasts, this rank may call a model without the others, as `predict` does."""
        return self.calls.during(Call("predict", False))

    # -- fit, evaluate, predict

    def _fit(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        stop = self.rank.stop
        if stop.asked:
            raise StopRun()
        self.loop.end()
        arguments = self._arguments(original, model, args, kwargs)
        self._begin_fit(model)
        try:
            self.batchnorm.begin_fit(model)
            self.calls.fit = fit = FitInProgress(model)
            fit.checkpoints = checkpoints = self._checkpoints.begin_fit(arguments)
            arguments["callbacks"] = self._callbacks(
                fit, arguments.get("callbacks"), self._pass_generators_on(arguments)
            )
            history = self._call(Call("fit", self.config.size > 1), original, model, arguments)
        finally:
            self.calls.fit = None
            self.rank.end_fit()
        if stop.run_agreed or (not self.config.reduces_gradients and stop.asked):
            raise StopRun()
        checkpoints.end(model, history)
        return history

    def _pass_generators_on(self, arguments: dict[str, Any]) -> list[Any]:
        """Have a fit lose no batch of a generator. Returns callbacks for that."""
        if self.config.size == 1:
            return []
        callback, goes_on = self._generators.pass_on(arguments)
        if goes_on:
            self.rank.reporter.notice_once("info", _GOES_ON)
        return [callback]

    def _begin_fit(self, model: Model) -> None:
        self.rank.begin_fit(model)

    def _arguments(
        self, original: Callable[..., Any], model: Model, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """What a method of Keras was called with, by name. Only the chief shows progress, in lines that stay."""
        arguments = _by_name(original, model, args, kwargs)
        if not self.config.is_chief:
            arguments["verbose"] = 0
        elif arguments.get("verbose", "auto") in ("auto", 1):
            arguments["verbose"] = 2
        return arguments

    def _callbacks(self, fit: FitInProgress, given: Any, more: list[Any]) -> Any:
        """The user's callbacks, with the runtime's own behind them, and `more`."""
        callbacks, rank = self.keras.callbacks, self.rank
        assert fit.checkpoints is not None
        own: list[Any] = [fit.checkpoints.before, Monitor(rank, fit, self.rows, self), fit.checkpoints.after]
        own += more
        if self.config.local_updates and (rank.server or rank.peers.ring):
            own.insert(1, self._new_sync(fit))
        users = list(given) if isinstance(given, (list, tuple)) else [given] if given is not None else []
        users = given.callbacks if isinstance(given, callbacks.CallbackList) else users
        if self.config.reduces_gradients and batch_logs.are_read_by(users):
            of_job = functools.partial(self._mean_logs, announcement.METRICS, True)
            users.insert(0, batch_logs.BatchLogs(of_job, self._sum_metrics))
            users[0].set_model(fit.model)
            own.insert(0, batch_logs.AgreedStop(rank.peers))
        if isinstance(given, callbacks.CallbackList):
            for callback in own:
                callback.set_model(fit.model)
                given.append(callback)
            given._should_call_train_batch_hooks = True  # Keras 2 has looked through the list already
            return given
        fit.checks_finite = not any(isinstance(one, callbacks.TerminateOnNaN) for one in users)
        return users + own

    def _new_sync(self, fit: FitInProgress) -> Any:
        """The callback by which ranks with updates of their own meet."""
        for metric in fit.model.metrics:  # of a train_step of its own, perhaps
            self.whole_metrics.take(metric)
        if self.rank.server:
            from .parameter_sync import ParameterSync

            sync = ParameterSync(self.rank, fit, self)
            fit.sync, fit.validate = sync, sync.validate
            return sync
        from .ring_sync import RingSync

        fit.sync = RingSync(self.rank, self, self.metric_sums)
        return fit.sync

    def _evaluate(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        arguments, fit = self._arguments(original, model, args, kwargs), self.calls.fit
        of_fit = arguments.get("_use_cached_eval_dataset", False)
        if of_fit and self.rank.stop.run_agreed:
            return {}  # asked to stop: the model matters now, not its score
        if of_fit and fit is not None and fit.validate and self.config.size > 1:
            return fit.validate(lambda: self._call(Call("evaluate", False), original, model, arguments))
        return self._call(Call("evaluate", of_fit and self.config.size > 1), original, model, arguments)

    def _predict(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        return self._call(Call("predict", False), original, model, self._arguments(original, model, args, kwargs))

    # -- train_on_batch, test_on_batch

    def _train_on_batch(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        if self.calls.current is not None:  # a callback's
            return original(model, *args, **kwargs)
        if self.config.local_updates:
            self.rank.reporter.notice_once("warning", _NOT_SHARED % (TRAIN_BATCH, self.config.spec.strategy))
        return self._on_batch(TRAIN_BATCH, original, model, args, kwargs)

    def _test_on_batch(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        if self.calls.current is not None:
            return original(model, *args, **kwargs)
        return self._on_batch(TEST_BATCH, original, model, args, kwargs)

    def _on_batch(
        self, kind: str, original: Callable[..., Any], model: Model, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        if self.config.reduces_gradients and self.config.size > 1:
            self.data.refuse_stateful(model)
        arguments = _by_name(original, model, args, kwargs)
        as_dict = arguments.get("return_dict", False)
        arguments["return_dict"] = True

        def take() -> dict[str, Any]:
            self._prepare(model)
            return self._logs_on_batch(Call(kind, self.config.reduces_gradients), original, model, arguments)

        logs = self.loop.step(model, take) if kind == TRAIN_BATCH else take()
        return logs if as_dict else self.logs_as_list(model, dict(logs))

    def _logs_on_batch(
        self, call: Call, original: Callable[..., Any], model: Model, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        if call.shared and not self.config.is_chief and not arguments.get("reset_metrics", True):
            model.reset_metrics()  # the states that are summed up afterwards continue on the chief
        with self.calls.during(call):
            with self._slices.aside():
                logs: dict[str, Any] = original(model, **arguments)
            return self.logs_of_metrics(model, logs) if call.shared else logs

    # -- loops of the cell's own

    def distribute(self, data: Any, reduction: str | None) -> Any:
        """`ddl.distribute` of the cell."""
        return distributed.distribute(data, reduction, self._slices, self.config)

    def result(self, metric: Metric) -> Any:
        """`ddl.result` of the cell."""
        if not self.config.reduces_gradients:
            return metric.result()
        before = [tf.identity(variable) for variable in metric.variables]
        self.metric_sums.reduce(announcement.METRICS, [metric], [])
        result = metric.result()
        for variable, value in zip(metric.variables, before):
            variable.assign(value)
        return result

    def _note_loss(self, original: Callable[..., Tensor], loss: Any, *args: Any, **kwargs: Any) -> Tensor:
        if self.calls.current is None:
            self._slices.note_loss(getattr(loss, "reduction", None))
        return original(loss, *args, **kwargs)

    def note_update(self, variables: Sequence[Variable]) -> None:
        """An optimizer, perhaps in a loop of the cell's own, is about to update `variables`. Called in a trace, too."""
        if self.calls.current is not None or self.applying:
            return
        if self._equal_weights.is_new(variables):
            for model in owners(self.trainer, variables):
                self.batchnorm.begin_fit(model)
                self.loop.note(model)
            self._equal_weights.align(variables)
        if not self.config.reduces_gradients:
            self.loop.count_update()

    def _prepare(self, model: Model) -> None:
        """Before the first step of a model that is built: equal weights on all ranks."""
        if model.built and self._equal_weights.is_new(self.weights(model)):
            self.batchnorm.begin_fit(model)
            self._equal_weights.align(self.weights(model))

    def _average_statistics(self, models: Sequence[Model]) -> None:
        if self.config.reduces_gradients:
            statistics = [variable for model in models for variable in self.statistics(model)]
            if statistics:
                self.metric_sums.reduce(announcement.EPOCH, [], statistics)
            self._equal_weights.compare([variable for model in models for variable in model.trainable_variables])

    def _call(self, call: Call, original: Callable[..., Any], model: Model, arguments: dict[str, Any]) -> Any:
        with self.calls.during(call), self._slices.aside():
            return original(model, **arguments)

    # -- the step

    def keeps_xla(self, model: Model, step: Callable[..., Any]) -> bool:
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

    def apply_reduced(
        self, apply: Callable[[Sequence[Gradient]], Any], gradients: Sequence[Gradient], scaled: bool
    ) -> Any:
        """`apply` the job's gradients in place of a rank's own. scaled: by an optimizer that skips overflown steps."""
        if self.deferred_updates is not None:
            self.deferred_updates.append(DeferredUpdate(apply, gradients, scaled))
            return None
        if self.applying or not self.config.reduces_gradients or tf.distribute.in_cross_replica_context():
            return apply(gradients)
        if self.weighing.tries:
            return self.weighing.note_update(gradients)
        self.applying = True
        try:
            checks_finite = self.calls.fit is None or self.calls.fit.checks_finite
            exchange = self._exchange(gradients, checks_finite and not scaled)
            share = self.traced.share
            if self.calls.current is not None:
                gradients = self.weighing.weighed(gradients)
            else:
                gradients, share = self._slices.of_update(gradients)
            with self.noise.alike():
                return apply(exchange(gradients, share))
        finally:
            self.applying = False

    def _exchange(self, gradients: Sequence[Gradient], check_finite: bool) -> GradientExchange:
        """What sums the gradients. An eager step gets that of the step before, with what compression has left over."""
        if self.config.compression is None or not tf.executing_eagerly():  # what is traced is kept by its graph
            return overlap.exchange(self.rank, check_finite)
        shapes = tuple(None if one is None else (tuple(one.shape), one.dtype) for one in gradients)
        key = check_finite, shapes
        if key not in self._eager_exchanges:
            self._eager_exchanges[key] = overlap.exchange(self.rank, check_finite)
        return self._eager_exchanges[key]

    def hook_own_optimizers(self, bases: Sequence[type], **hooks: Callable[..., Any]) -> None:
        """Have methods that a cell's optimizer overrides called like Keras' own: with the gradients of the job.

        hooks: by the name of the method. A class is known when its first object is made.
        """
        known: set[type] = set()

        def made(original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            for kind in type(optimizer).__mro__:
                if kind not in known and not is_of_keras(kind):
                    known.add(kind)
                    for name in hooks.keys() & vars(kind).keys():
                        wrap(kind, name, hooks[name])
            original(optimizer, *args, **kwargs)

        for base in bases:
            wrap(base, "__init__", made)

    # -- the ends of epochs

    def epoch_logs(self, original: Callable[..., Any], model: Model, logs: Any) -> Any:
        """The logs of the whole job; `original(model, logs)` makes them of the metrics' states."""
        call, fit = self.calls.current, self.calls.fit
        if call is None or not call.shared:
            return original(model, logs)
        kind = _METRICS_OF[call.kind]
        if call.trains and self.config.local_updates:
            assert fit is not None and fit.sync is not None
            fit.sync.end_epoch(model)
            return original(model, logs)
        results = batch_logs.results_of_metrics(model)
        self.metric_sums.reduce(kind, model.metrics, self.statistics(model) if call.trains else [])
        result = original(model, logs)
        if result is logs and logs:
            of_job = functools.partial(self._mean_logs, kind, call.trains)
            result = batch_logs.logs_of_job(logs, results, of_job, lambda: batch_logs.results_of_metrics(model))
        if call.kind == "fit":
            self._equal_weights.compare(model.trainable_variables)
        return result

    def _mean_logs(self, kind: int, training: bool, logs: dict[str, Any]) -> dict[str, float]:
        """Numbers that the last step has returned, of the rows of all ranks."""
        sums = self.weighing.summed_logs.get(training, frozenset())
        return reduce.mean_logs(self.rank.peers, kind, logs, self.rows.last, sums)

    def _sum_metrics(self, metrics: Sequence[Metric]) -> None:
        self.metric_sums.reduce(announcement.METRICS, metrics, [])

    def _is_fitting(self, model: Model) -> bool:
        return self.calls.fit is not None and self.calls.fit.model is model

    def _get_stop(self, model: Model) -> bool:
        stop = self.rank.stop
        if self._is_fitting(model) and self.config.reduces_gradients:
            return stop.agreed
        asked = model.__dict__.get("_ddl_stop", False)
        return asked or (self._is_fitting(model) and (stop.asked or stop.agreed))

    def _set_stop(self, model: Model, value: bool) -> None:
        object.__setattr__(model, "_ddl_stop", bool(value))
        if self._is_fitting(model):
            self.rank.stop.requested = bool(value)


def wrap(owner: type, name: str, wrapper: Callable[..., Any]) -> None:
    """Have `wrapper(original, self, ...)` called for the method `name` of the class `owner`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    hooked.autograph_info__ = {}  # type: ignore[attr-defined]  # AutoGraph leaves it as it is
    setattr(owner, name, hooked)


def _is_scalar(value: Any) -> bool:
    return value.shape.rank == 0 if tf.is_tensor(value) else isinstance(value, (int, float, np.number))


def _by_name(method: Callable[..., Any], model: Model, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of a model's method, by name."""
    arguments = dict(inspect.signature(method).bind(model, *args, **kwargs).arguments)
    arguments.pop("self")
    arguments.update(arguments.pop("kwargs", {}))
    return arguments
