"""The calls of Keras' methods on a rank: fit, evaluate, predict, train_on_batch, test_on_batch."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Sequence

from ..keras_types import Model
from ..stopping import StopRun
from . import rehearsal
from .call_data import CallData
from .calls import TEST_BATCH, TRAIN_BATCH, Call
from .cell_loops import CellLoops
from .checkpointing import Checkpoints
from .chief_feed import ChiefFeed
from .fit_callbacks import FitCallbacks, of_cell
from .fit_in_progress import FitInProgress
from .kept_generators import KeptGenerators
from .keras_access import KerasAccess
from .sharded_optimizers import ShardedOptimizers
from .step_context import StepContext

_NOT_SHARED = (
    "%s is not distributed with --strategy %s: each worker trains on all rows for itself; use --strategy allreduce, or "
    "model.fit"
)
_READ_AHEAD = (
    "this fit reuses the generator of an earlier one: plain Keras drops the batches that it has read ahead, and "
    "workers drop none, so that the results may differ"
)


class FitCalls:
    """Each method stands in for one of Keras: `method(original, model, ...)`."""

    def __init__(
        self,
        context: StepContext,
        access: KerasAccess,
        loops: CellLoops,
        data: CallData,
        callbacks: FitCallbacks,
        feed: ChiefFeed,
        sharding: ShardedOptimizers,
    ) -> None:
        self._context, self._rank, self._config, self._calls = context, context.rank, context.config, context.calls
        self._access, self._loops, self._data, self._callbacks, self._feed = access, loops, data, callbacks, feed
        self._sharding = sharding
        self._checkpoints = Checkpoints(context.rank, access, context.metric_sums)
        self._generators = KeptGenerators()

    def fit(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        rank, stop = self._rank, self._rank.stop
        if stop.asked:
            raise StopRun()
        self._loops.loop.finish()
        arguments = _by_name(original, model, args, kwargs)
        progress = self._callbacks.of_progress(arguments) if self._config.regroups else []
        self._show_progress(arguments)
        rank.begin_fit(model)
        try:
            self._context.batchnorm.begin_fit(model)
            self._sharding.begin_fit(model, of_cell(arguments.get("callbacks")))
            if self._checkpoints.joins:
                self._rehearse(original, model, arguments)
            checkpoints = self._checkpoints.begin_fit(arguments)
            validates_apart = self._feed.is_read_apart(arguments.get("validation_data"))
            self._calls.fit = FitInProgress(model, checkpoints, validates_apart=validates_apart)
            more = [*self._pass_generators_on(arguments), *progress]
            arguments["callbacks"] = self._callbacks.of_fit(
                self._calls.fit, checkpoints, arguments.get("callbacks"), more
            )
            history = self._call(Call("fit", self._config.size > 1), original, model, arguments)
            self._feed.end_fit()
        finally:
            if self._calls.fit is not None and self._calls.fit.membership is not None:
                self._calls.fit.membership.end()
            self._calls.fit = None
            rank.end_fit()
        self._sharding.end_fit(model)
        if stop.run_agreed or (not self._config.reduces_gradients and stop.asked):
            raise StopRun()
        checkpoints.complete(model, history)
        return history

    def _rehearse(self, original: Callable[..., Any], model: Model, arguments: dict[str, Any]) -> None:
        """Have a rank that is about to join trace and compile its step, so that the others need not wait for that.

        It makes a step by itself. What that changes is replaced when the rank joins, but for random streams, which are
        put back. Not with a rule, as the step has its factor of the learning rate, which depends on the others.
        """
        alone = rehearsal.arguments(arguments)
        if alone is None or self._config.rule is not None or not self._access.repeats(model):
            return
        self._calls.fit = fit = FitInProgress(model)
        alone["callbacks"] = self._callbacks.of_rehearsal(fit)
        # What the cell's own code raises on made-up rows is of no interest: then the first step is traced.
        with rehearsal.streams_put_back(), contextlib.suppress(Exception):
            self._call(Call("fit", True), original, model, alone)
        if fit.membership is not None:
            fit.membership.end()
        self._calls.fit = None
        self._access.release_data()  # the others would wait for it once this rank has joined

    def _pass_generators_on(self, arguments: dict[str, Any]) -> list[Any]:
        """Have a fit lose no batch of a generator. Returns callbacks for that."""
        if self._config.size == 1:
            return []
        every = self._rank.peers.place[1] if self._config.local_updates else 1
        callback, is_reused = self._generators.pass_on(arguments, every)
        if is_reused:
            self._rank.reporter.notice_once("info", _READ_AHEAD)
        return [callback]

    def evaluate(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        arguments, fit = self._arguments(original, model, args, kwargs), self._calls.fit
        of_fit = arguments.get("_use_cached_eval_dataset", False)
        if of_fit and self._rank.stop.run_agreed:
            return {}  # a stopped run keeps its model; the score does not matter
        if of_fit and fit is not None and fit.validate and self._config.size > 1:
            return fit.validate(lambda: self._call(Call("evaluate", False), original, model, arguments))

        def evaluate() -> Any:
            return self._call(Call("evaluate", of_fit and self._config.size > 1), original, model, arguments)

        if not of_fit or fit is None or fit.membership is None:
            return evaluate()
        callbacks = arguments.get("callbacks")
        return fit.membership.evaluation(evaluate, lambda: callbacks.on_test_end({}) if callbacks else None)

    def predict(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        return self._call(Call("predict", False), original, model, self._arguments(original, model, args, kwargs))

    def train_on_batch(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        if self._calls.current is not None:  # in a callback
            return original(model, *args, **kwargs)
        if self._config.local_updates:
            self._rank.reporter.notice_once("warning", _NOT_SHARED % (TRAIN_BATCH, self._config.spec.strategy))
        return self._on_batch(TRAIN_BATCH, original, model, args, kwargs)

    def test_on_batch(self, original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        if self._calls.current is not None:
            return original(model, *args, **kwargs)
        return self._on_batch(TEST_BATCH, original, model, args, kwargs)

    def _on_batch(
        self, kind: str, original: Callable[..., Any], model: Model, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        if self._config.reduces_gradients and self._config.size > 1:
            self._data.refuse_stateful(model)
        arguments = _by_name(original, model, args, kwargs)
        as_dict = arguments.get("return_dict", False)
        arguments["return_dict"] = True

        def step() -> dict[str, Any]:
            self._loops.prepare(model)
            return self._logs_on_batch(Call(kind, self._config.reduces_gradients), original, model, arguments)

        logs = self._loops.loop.step(model, step) if kind == TRAIN_BATCH else step()
        return logs if as_dict else self._access.logs_as_list(model, dict(logs))

    def _logs_on_batch(
        self, call: Call, original: Callable[..., Any], model: Model, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        if call.shared and self._rank.peers.position != 0 and not arguments.get("reset_metrics", True):
            model.reset_metrics()  # states are summed afterwards: only the chief's continue
        with self._calls.during(call):
            with self._loops.slices.aside():
                logs: dict[str, Any] = original(model, **arguments)
            return self._access.logs_of_metrics(model, logs) if call.shared else logs

    def _call(self, call: Call, original: Callable[..., Any], model: Model, arguments: dict[str, Any]) -> Any:
        with self._calls.during(call), self._loops.slices.aside():
            return original(model, **arguments)

    def _arguments(
        self, original: Callable[..., Any], model: Model, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """The arguments of a call by name."""
        arguments = _by_name(original, model, args, kwargs)
        self._show_progress(arguments)
        return arguments

    def _show_progress(self, arguments: dict[str, Any]) -> None:
        """Have the chief alone show progress, in lines that stay."""
        if not self._rank.peers.is_chief:
            arguments["verbose"] = 0
        elif arguments.get("verbose", "auto") in ("auto", 1):
            arguments["verbose"] = 2

    # -- stop_training

    def stop_training(self) -> property:
        """The property in place of the attribute `stop_training` of models."""
        return property(self._get_stop, self._set_stop)

    def _is_fitting(self, model: Model) -> bool:
        return self._calls.fit is not None and self._calls.fit.model is model

    def _get_stop(self, model: Model) -> bool:
        stop = self._rank.stop
        if self._is_fitting(model) and self._config.reduces_gradients:
            return stop.agreed
        is_set = model.__dict__.get("_ddl_stop", False)
        return is_set or (self._is_fitting(model) and (stop.asked or stop.agreed))

    def _set_stop(self, model: Model, value: bool) -> None:
        object.__setattr__(model, "_ddl_stop", bool(value))
        if self._is_fitting(model):
            self._rank.stop.requested = bool(value)


def _by_name(method: Callable[..., Any], model: Model, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    arguments = dict(inspect.signature(method).bind(model, *args, **kwargs).arguments)
    arguments.pop("self")
    arguments.update(arguments.pop("kwargs", {}))
    return arguments
