"""The learning rate of workers that update by themselves, of Keras 2 or 3: a factor, and the progress of a schedule.

The factor acts inside the step alone: a schedule, callback or checkpoint that reads or sets the rate sees the user's.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, NamedTuple

from ..keras_types import Model, Optimizer, inner_optimizer
from ..parameter_server.rule_spec import Rule
from ..rank.rank import Rank
from ..trial.patching import wrap
from . import optimizers

_FACTOR, _STEPPING, _TRACED = "_ddl_rate_factor", "_ddl_stepping", "_ddl_traced_factor"
_COUNTED = "_ddl_counted_steps"
_hooked: list[bool] = []


def follow(rank: Rank, rule: Rule, model: Model) -> None:
    """Have a fit of `model`, which begins, train at the rate that `rule` wants of each worker; say so once a run."""
    optimizer = inner_optimizer(model.optimizer)
    if getattr(optimizer, _TRACED, rule.rate) != rule.rate:
        model.make_train_function(force=True)  # the fit before has traced a step with its own factor
    object.__setattr__(optimizer, _TRACED, rule.rate)
    scale(optimizer, rule.rate)
    if rank.peers.is_chief and rule.rate != 1:
        message = (
            "each worker trains with %.3g times the learning rate of its optimizer, as the mean of %d workers is less "
            "noisy than one; use --rule %s:rate=1 if you already tuned the learning rate for several workers"
        )
        rank.reporter.notice_once("info", message % (rule.rate, rank.peers.place[1], rule.name))


def scale(optimizer: Optimizer, factor: float) -> None:
    """Have the steps of `optimizer` made with `factor` times its rate from now on.

    A step that was traced before keeps the factor that it was traced with.
    """
    _hook()
    object.__setattr__(inner_optimizer(optimizer), _FACTOR, factor)


def count_steps_of_all(model: Model, workers: int, steps: int | None = None) -> None:
    """Have a schedule of a fit of `model` count the steps of all workers, of which each makes its share: else it would
    be so many times as slow as with one process.

    steps: how many all have made so far, where that is known; else as many as counted before.
    """
    _hook()
    optimizer = inner_optimizer(model.optimizer)
    before, own = _counted(optimizer), _own_steps(optimizer)
    if steps is None:
        steps = own * workers if before is None else before.of_all(own)
    now = _Counted(workers, steps - own * workers)
    object.__setattr__(optimizer, _COUNTED, now)
    if now != before and optimizers.fixed_rate(optimizer) is None:
        model.make_train_function(force=True)  # a step that was traced before counts others


def steps_of_all(optimizer: Optimizer) -> int:
    """How many steps all workers have made; those of this one where `count_steps_of_all` was not called."""
    counted, own = _counted(optimizer), _own_steps(optimizer)
    return own if counted is None else int(counted.of_all(own))


class _Counted(NamedTuple):
    """of_others: steps beside those that `workers` have made, if each has made as many as this one."""

    workers: int
    of_others: int

    def of_all(self, steps: Any) -> Any:
        return steps * self.workers + self.of_others


def _own_steps(optimizer: Optimizer) -> int:
    """Those of this worker; an optimizer of the cell's own may not count them."""
    return int(getattr(inner_optimizer(optimizer), "iterations", 0))


def _counted(optimizer: Optimizer) -> _Counted | None:
    counted: _Counted | None = getattr(inner_optimizer(optimizer), _COUNTED, None)
    return counted


def _hook() -> None:
    if _hooked:
        return
    _hooked.append(True)
    import keras

    if not keras.__version__.startswith("2."):
        from keras.src.optimizers.base_optimizer import BaseOptimizer

        wrap(BaseOptimizer, "apply", _step)
        wrap(BaseOptimizer, "_get_current_learning_rate", _rate_of_schedule)
        _hook_rate(BaseOptimizer)
        return
    from keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2
    from keras.src.optimizers.optimizer import Optimizer as OptimizerV3
    from keras.src.optimizers.optimizer import _BaseOptimizer

    wrap(OptimizerV3, "apply_gradients", _step)
    _hook_rate(_BaseOptimizer)
    wrap(_BaseOptimizer, "_compute_current_learning_rate", _rate_of_schedule)
    wrap(OptimizerV2, "_decayed_lr", _scaled_rate)  # asked for by steps alone


def _scaled_rate(original: Callable[..., Any], optimizer: Optimizer, dtype: Any) -> Any:
    with _schedule_of_all(optimizer, optimizer._hyper, "learning_rate"):
        return original(optimizer, dtype) * getattr(optimizer, _FACTOR, 1.0)


def _rate_of_schedule(original: Callable[..., Any], optimizer: Optimizer) -> Any:
    with _schedule_of_all(optimizer, optimizer.__dict__, "_learning_rate"):
        return original(optimizer)


@contextlib.contextmanager
def _schedule_of_all(optimizer: Optimizer, names: dict[str, Any], name: str) -> Iterator[None]:
    """While it lasts, the schedule under this name, if it is one, gets the number of all workers' steps."""
    import keras

    counted, schedule = _counted(optimizer), names.get(name)
    if counted is None or not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        yield
        return
    of_all, own_schedule = counted.of_all, schedule

    class OfAll(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return own_schedule(of_all(step))

    names[name] = OfAll()
    try:
        yield
    finally:
        names[name] = schedule


def _step(original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
    object.__setattr__(optimizer, _STEPPING, True)
    try:
        return original(optimizer, *args, **kwargs)
    finally:
        object.__setattr__(optimizer, _STEPPING, False)


def _hook_rate(owner: Any) -> None:
    rate_property = owner.learning_rate

    def learning_rate(self: Any) -> Any:
        rate = rate_property.fget(self)
        return rate * getattr(self, _FACTOR, 1.0) if getattr(self, _STEPPING, False) else rate

    owner.learning_rate = property(learning_rate, rate_property.fset, rate_property.fdel, rate_property.__doc__)
