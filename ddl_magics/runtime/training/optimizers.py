"""What update rules need to know of the user's own Keras optimizer, of Keras 2 or 3."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from ..keras_types import Optimizer, Variable, inner_optimizer


def learning_rate(optimizer: Optimizer) -> float | None:
    """The rate of the next step, or None for an optimizer that does not say."""
    optimizer = inner_optimizer(optimizer)
    try:
        rate = optimizer.learning_rate
        if callable(rate) and not hasattr(rate, "numpy"):  # a schedule
            rate = rate(optimizer.iterations)
        return float(np.asarray(rate))
    except (AttributeError, TypeError, ValueError):
        return None


def fixed_rate(optimizer: Optimizer) -> float | None:
    """The rate as a number that can be set; None for a schedule."""
    rates = [getattr(inner_optimizer(optimizer), name, None) for name in ("_learning_rate", "learning_rate")]
    schedule = any(callable(rate) and not hasattr(rate, "numpy") for rate in rates)
    return None if schedule else learning_rate(optimizer)


def momentum(optimizer: Optimizer) -> float:
    """The momentum of SGD; 0 for optimizers that have none."""
    value = getattr(inner_optimizer(optimizer), "momentum", 0.0)
    try:
        return float(np.asarray(value))
    except (TypeError, ValueError):
        return 0.0


def moving_averages(optimizer: Optimizer) -> list[Variable]:
    """The moving averages of the weights, which a fit ends with, of an optimizer that has use_ema; else nothing."""
    inner = inner_optimizer(optimizer)
    return list(getattr(inner, "_model_variables_moving_average", ())) if getattr(inner, "use_ema", False) else []


def require_look_ahead(optimizer: Optimizer, rule: str) -> None:
    """ValueError unless the optimizer is an SGD with Nesterov momentum."""
    sgd = inner_optimizer(optimizer)
    legacy = ".legacy." in type(sgd).__module__  # whose velocities are not in `momentums`
    if type(sgd).__name__ == "SGD" and not legacy and getattr(sgd, "nesterov", False) and momentum(sgd) > 0:
        return
    raise ValueError(
        "--rule %s is made for keras.optimizers.SGD with momentum and nesterov=True, and this model has %s; change the "
        "optimizer, or use --rule aeasgd" % (rule, "a legacy one" if legacy else type(sgd).__name__)
    )


def look_ahead(optimizer: Optimizer, variables: Sequence[Variable]) -> np.ndarray | float:
    """d v of an SGD with Nesterov momentum d and velocities v, flat, in the order of `variables`; 0.0 before its first
    step. (Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning", equation 3.)
    """
    sgd = inner_optimizer(optimizer)
    velocities = list(getattr(sgd, "momentums", None) or ())
    if len(velocities) != len(variables):
        return 0.0
    return momentum(sgd) * np.concatenate([np.asarray(velocity).reshape(-1) for velocity in velocities])
