"""Whether training with an update rule can be expected to diverge: what is known before the first step."""

from __future__ import annotations

import math

from ..parameter_server.rule_spec import RATE, Rule

#: A rule's own factor of the learning rate keeps this distance from the limit, near which training swings for long.
_MARGIN = 0.8
_LOWER = 0.95


def progress(rate: float, momentum: float, window: int) -> float:
    """The share of its distance to the optimum that a worker covers by itself in `window` batches.

    1 - (1 - eta / (1 - d))^tau for gradient descent of rate eta and momentum d where the loss has curvature 1, as it
    about has for inputs and weights of order one. What the loss is really like nobody knows before training.
    """
    return 1 - (1 - min(1.0, rate / max(1e-6, 1 - momentum))) ** window


def limit(lag: float) -> float:
    """The largest gain at which c <- c - gain c', with c' the centre of `lag` commits ago, does not grow.

    2 sin(pi / (2 (2 lag + 1))): Levin and May, "A note on difference-delay equations", Theoretical Population Biology 9
    (1976). 2 without lag, about pi / (2 lag) with much.
    """
    return 2 * math.sin(math.pi / (2 * (2 * lag + 1)))


def steady(rule: Rule, rate: float | None, momentum: float, window: int) -> Rule:
    """`rule` with its factor of the learning rate lowered, but not below 1, as far as its updates would overshoot.

    That is for windows shorter than there are workers: with one of n batches or more all rules stay clear of the limit.
    """
    factor = rule.rate
    while factor > 1:
        gain, bound = _gain_and_limit(rule, (rate or 0.0) * factor, momentum, window)
        if gain <= _MARGIN * bound:
            break
        factor = max(1.0, _LOWER * factor)
    return rule._replace(rate=factor, settings=dict(rule.settings, **{RATE.name: factor}))


def warning(rule: Rule, rate: float | None, momentum: float, window: int, workers: int) -> str | None:
    """One line that says what will probably diverge and what to change, or None. `rate` None: it is not known."""
    worker_rate = (rate or 0.0) * rule.rate
    gain, bound = _gain_and_limit(rule, worker_rate, momentum, window)
    if gain <= bound:
        return None
    settings = "".join(", %s %.3g" % pair for pair in sorted(rule.settings.items()))
    rate_words = "" if rate is None else ", learning rate %.3g" % rate
    return (
        "the rule %s will probably diverge (%d workers, window %d%s%s): an update moves the central model by %.2g of "
        "its distance to the optimum, and more than %.2g overshoots with this many workers; %s"
        % (rule.name, workers, window, rate_words, settings, gain, bound, _advice(rule, worker_rate, momentum, window))
    )


def _gain_and_limit(rule: Rule, rate: float, momentum: float, window: int) -> tuple[float, float]:
    # Training continues during a commit: the first batch of a window has not seen the answer to the last one yet.
    lag = rule.lag if rule.fresh else rule.lag * (1 + 1 / window)
    return rule.gain(progress(rate, momentum, window), window), limit(lag)


def _advice(rule: Rule, rate: float, momentum: float, window: int) -> str:
    if "alpha" in rule.settings:
        return "leave its alpha out"
    if "scale" in rule.settings:
        return "leave its scale out, or lower the learning rate or --window"
    for longer in range(window, 100 * window):
        gain, bound = _gain_and_limit(rule, rate, momentum, longer)
        if gain <= bound:
            return "use --window %d or more, or a lower learning rate" % longer
    return "lower the learning rate"
