"""A factor on the learning rate of an optimizer's own steps, of Keras 2 or 3.

It is in force inside the step alone: whoever reads or sets the rate (a schedule, a callback, a checkpoint) sees what
the user means.
"""

import functools

from .optimizers import inner

_FACTOR, _STEPPING = "_ddl_rate_factor", "_ddl_stepping"
_hooked = []


def follow(context, rule, optimizer):
    """Have `optimizer` train at the rate that `rule` (a `rule.Rule`) wants of each worker, and say so once a run."""
    scale(optimizer, rule.rate)
    if context.is_chief and rule.rate != 1 and context.fit == 0:
        message = (
            "each worker trains with %.3g times the learning rate of its optimizer, as the mean of %d workers is less "
            "noisy than one; --rule %s:rate=1 leaves it as it is"
        )
        context.emit("notice", level="info", message=message % (rule.rate, context.size, rule.name))


def scale(optimizer, factor):
    """Have the steps of `optimizer` made with `factor` times its rate from now on.

    A step that was traced before keeps the factor that it was traced with.
    """
    if not _hooked:
        _hook()
        _hooked.append(True)
    object.__setattr__(inner(optimizer), _FACTOR, factor)


def _hook():
    import keras

    if not keras.__version__.startswith("2."):
        from keras.src.optimizers.base_optimizer import BaseOptimizer

        _hook_steps(BaseOptimizer, "apply")
        _hook_rate(BaseOptimizer)
        return
    from keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2
    from keras.src.optimizers.optimizer import Optimizer, _BaseOptimizer

    _hook_steps(Optimizer, "apply_gradients")
    _hook_rate(_BaseOptimizer)
    decayed = OptimizerV2._decayed_lr  # asked for by steps alone

    @functools.wraps(decayed)
    def scaled(self, dtype):
        return decayed(self, dtype) * getattr(self, _FACTOR, 1.0)

    OptimizerV2._decayed_lr = scaled


def _hook_steps(owner, name):
    original = getattr(owner, name)

    @functools.wraps(original)
    def step(self, *args, **kwargs):
        object.__setattr__(self, _STEPPING, True)
        try:
            return original(self, *args, **kwargs)
        finally:
            object.__setattr__(self, _STEPPING, False)

    setattr(owner, name, step)


def _hook_rate(owner):
    given = owner.learning_rate

    def learning_rate(self):
        rate = given.fget(self)
        return rate * getattr(self, _FACTOR, 1.0) if getattr(self, _STEPPING, False) else rate

    owner.learning_rate = property(learning_rate, given.fset, given.fdel, given.__doc__)
