"""What update rules need to know of the user's own Keras optimizer, of Keras 2 or 3."""

import numpy as np


def inner(optimizer):
    """The optimizer inside a LossScaleOptimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def learning_rate(optimizer):
    """The rate of the next step as a float, or None where it cannot be told."""
    optimizer = inner(optimizer)
    try:
        rate = optimizer.learning_rate
        if callable(rate) and not hasattr(rate, "numpy"):  # a schedule
            rate = rate(optimizer.iterations)
        return float(np.asarray(rate))
    except (AttributeError, TypeError, ValueError):
        return None


def momentum(optimizer):
    """The momentum of SGD as a float; 0 for optimizers that have none."""
    value = getattr(inner(optimizer), "momentum", 0.0)
    try:
        return float(np.asarray(value))
    except (TypeError, ValueError):
        return 0.0


def require_look_ahead(optimizer, rule):
    """ValueError unless the optimizer is an SGD with Nesterov momentum."""
    sgd = inner(optimizer)
    if type(sgd).__name__ == "SGD" and getattr(sgd, "nesterov", False) and momentum(sgd) > 0:
        return
    raise ValueError(
        "--rule %s is made for keras.optimizers.SGD with momentum and nesterov=True, and this model has %s; change the "
        "optimizer, or use --rule aeasgd" % (rule, type(sgd).__name__)
    )


def look_ahead(optimizer, variables):
    """d v of an SGD with Nesterov momentum d, flat, in the order of `variables`; 0.0 before its first step."""
    sgd = inner(optimizer)
    velocities = list(getattr(sgd, "momentums", None) or ())
    if len(velocities) != len(variables):
        return 0.0
    return momentum(sgd) * np.concatenate([np.asarray(velocity).reshape(-1) for velocity in velocities])
