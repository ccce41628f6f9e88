"""A factor on the learning rate of an optimizer's own steps, of Keras 2 or 3.

It acts inside the step alone: a schedule, callback or checkpoint that reads or sets the rate sees the user's.
"""

from __future__ import annotations

from typing import Any, Callable

from ..keras_types import Model, Optimizer, inner_optimizer
from ..parameter_server.rule_spec import Rule
from ..rank.rank import Rank
from ..trial.patching import wrap

_FACTOR, _STEPPING, _TRACED = "_ddl_rate_factor", "_ddl_stepping", "_ddl_traced_factor"
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
    if not _hooked:
        _hook()
        _hooked.append(True)
    object.__setattr__(inner_optimizer(optimizer), _FACTOR, factor)


def _hook() -> None:
    import keras

    if not keras.__version__.startswith("2."):
        from keras.src.optimizers.base_optimizer import BaseOptimizer

        wrap(BaseOptimizer, "apply", _step)
        _hook_rate(BaseOptimizer)
        return
    from keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2
    from keras.src.optimizers.optimizer import Optimizer as OptimizerV3
    from keras.src.optimizers.optimizer import _BaseOptimizer

    wrap(OptimizerV3, "apply_gradients", _step)
    _hook_rate(_BaseOptimizer)
    wrap(OptimizerV2, "_decayed_lr", _scaled_rate)  # asked for by steps alone


def _scaled_rate(original: Callable[..., Any], optimizer: Optimizer, dtype: Any) -> Any:
    return original(optimizer, dtype) * getattr(optimizer, _FACTOR, 1.0)


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
