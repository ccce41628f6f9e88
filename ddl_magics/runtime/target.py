"""`--target`: the value of a metric at which training ends. Pure."""

from __future__ import annotations

import math
from typing import Iterable, Mapping, NamedTuple

from .chief import Chief
from .events import Epoch, Member, RawEvent, Values, parse

#: Words in the names of metrics whose larger values are better, and of those whose smaller ones are.
_HIGHER = frozenset(("acc", "accuracy", "auc", "precision", "recall", "f1", "fbeta", "iou", "r2"))
_LOWER = frozenset(
    ("loss", "error", "mse", "mae", "mape", "msle", "rmse", "mde", "crossentropy", "divergence", "perplexity")
)
_DIRECTIONS = ("max", "min")


class Target(NamedTuple):
    """metric: as in the history of `fit`. direction: "max" where the metric must be at least `value`, else "min"."""

    metric: str
    value: float
    direction: str

    def is_reached(self, value: float | None) -> bool:
        """value: of the metric after an epoch; None, and NaN, never reach a target."""
        if value is None:
            return False
        return value >= self.value if self.direction == "max" else value <= self.value

    def __str__(self) -> str:
        return "%s %s %g" % (self.metric, ">=" if self.direction == "max" else "<=", self.value)


def read(text: str) -> Target:
    """A target from METRIC:VALUE, or METRIC:VALUE:max|min where the metric's name does not say which is better.

    Raises:
        ValueError: what the text must be.
    """
    criterion, _, direction = text.rpartition(":")
    if direction not in _DIRECTIONS:
        criterion, direction = text, ""
    metric, _, number = criterion.rpartition(":")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not metric.strip() or not math.isfinite(value):
        raise ValueError("a metric and a number, such as val_accuracy:0.98 or loss:0.1")
    direction = direction or _direction(metric)
    if not direction:
        raise ValueError(
            "a metric, a number, and max or min, as the metric's name does not say which is better, such as "
            "score:0.9:max"
        )
    return Target(metric, value, direction)


def _direction(metric: str) -> str:
    words = frozenset(metric.lower().split("_"))
    higher, lower = bool(words & _HIGHER), bool(words & _LOWER)
    return "" if higher == lower else "max" if higher else "min"


def verdict(target: Target, raw_events: Iterable[RawEvent]) -> str:
    """Whether a run with these events has reached its target, in words that follow "; "."""
    values: dict[int, dict[str, float | None]] = {}  # rank of the model -> when -> value
    metrics: dict[str, None] = {}
    calls, chief = 0, Chief()
    for event in map(parse, raw_events):
        chief.read(event)
        if isinstance(event, (Epoch, Member)):
            moment = "epoch %d%s" % (event.epoch + 1, " of fit %d" % (event.fit + 1) if event.fit else "")
        elif isinstance(event, Values) and event.rank == chief.rank:
            calls += 1
            moment = "call %d of ddl.log" % calls
        else:
            continue
        metrics.update(dict.fromkeys(event.metrics))
        if target.metric in event.metrics:
            member = event.rank if isinstance(event, Member) else 0
            values.setdefault(member, {})[moment] = event.metrics[target.metric]
    if not values:
        reported = ", ".join(metrics) or "nothing"
        return "target %s was not checked: the run reported %s" % (target, reported)
    if len(values) > 1:
        models_at_target = sum(any(map(target.is_reached, of_rank.values())) for of_rank in values.values())
        return "target %s reached by %d of %d models" % (target, models_at_target, len(values))
    return _of_model(target, *values.values())


def _of_model(target: Target, values: Mapping[str, float | None]) -> str:
    for moment, value in values.items():
        if value is not None and target.is_reached(value):
            return "target %s reached in %s: %.4g" % (target, moment, value)
    numbers = {moment: value for moment, value in values.items() if value is not None}
    if not numbers:
        return "target %s not reached: it was never a finite number" % (target,)
    best = (max if target.direction == "max" else min)(numbers, key=lambda moment: numbers[moment])
    return "target %s not reached: the best was %.4g, in %s" % (target, numbers[best], best)
