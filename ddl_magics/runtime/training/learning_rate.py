"""The learning rate of workers that update by themselves, of Keras 2 or 3: a factor, and the progress of a schedule.

The factor acts inside the step alone: a schedule, callback or checkpoint that reads or sets the rate sees the user's.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

from ..keras_types import Model, Optimizer, inner_optimizer
from ..parameter_server.rule_spec import Rule
from ..rank.rank import Rank
from ..trial.patching import wrap

_FACTOR, _STEPPING, _TRACED = "_ddl_rate_factor", "_ddl_stepping", "_ddl_traced_factor"
_WORKERS = "_ddl_workers"
_hooked: list[bool] = []


def follow(rank: Rank, rule: Rule, model: Model) -> None:
    """Have a fit of `model`, which begins, train at the rate that `rule` wants of each worker; say so once a run."""
    optimizer = inner_optimizer(model.optimizer)
    if getattr(optimizer, _TRACED, rule.rate) != rule.rate:
        model.make_train_function(force=True)  # the fit before has traced a step with its own factor
    object.__setattr__(optimizer, _TRACED, rule.rate)
    scale(optimizer, rule.rate)
    if rank.config.is_chief and rule.rate != 1:
        message = (
            "each worker trains with %.3g times the learning rate of its optimizer, as the mean of %d workers is less "
            "noisy than one; use --rule %s:rate=1 if you already tuned the learning rate for several workers"
        )
        rank.reporter.notice_once("info", message % (rule.rate, rank.config.size, rule.name))


def scale(optimizer: Optimizer, factor: float) -> None:
    """Have the steps of `optimizer` made with `factor` times its rate from now on.

    A step that was traced before keeps the factor that it was traced with.
    """
    _hook()
    object.__setattr__(inner_optimizer(optimizer), _FACTOR, factor)


def count_steps_of_all(optimizer: Optimizer, workers: int) -> None:
    """Have a schedule count the steps of all workers, of which each makes its share: else it would be so many times as
    slow as with one process.
    """
    _hook()
    object.__setattr__(inner_optimizer(optimizer), _WORKERS, workers)


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

    workers: int = getattr(optimizer, _WORKERS, 1)
    schedule: Any = names.get(name)
    if workers == 1 or not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        yield
        return

    class OfAll(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return schedule(step * workers)

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
