"""The objectives of a trial after each epoch, from the events of its run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.chief import Chief


@dataclass(frozen=True)
class Score:
    """A new value of the objective: the `step`th of the trial, from 1. label: "epoch 3", or "value 3" of ddl.log."""

    step: int
    value: float
    label: str

    @property
    def diverged(self) -> bool:
        return isnan(self.value)


class Scores:
    """Reads the events of one run; `feed` returns the new values of the objective.

    A step is an epoch of `fit` with the metric, over all calls of `fit`, or a call of `ddl.log` with it on the chief.
    A step that a later attempt repeats, because a worker was restarted, counts once, with its later value, as in the
    run's history.
    """

    def __init__(self, metric: str, further_metrics: Sequence[str] = ()) -> None:
        """metric: the first objective, whose values make the steps; further_metrics: of the other objectives."""
        self._metric, self._further_metrics = metric, further_metrics
        self._newest: dict[str, float] = {}
        self._steps: set[tuple[Any, ...]] = set()
        #: Calls of `ddl.log` without a step in the present attempt.
        self._attempt: int | None = 0
        self._calls = 0
        self._chief = Chief()
        #: All metrics that the run has reported so far.
        self.names: dict[str, None] = {}

    @property
    def missing(self) -> str | None:
        """The first objective without a value; None if all have one."""
        return next((name for name in (self._metric, *self._further_metrics) if name not in self._newest), None)

    @property
    def values(self) -> list[float]:
        """The last value of each objective; none may be `missing`. NaN is a value."""
        return [self._newest[name] for name in (self._metric, *self._further_metrics)]

    def feed(self, event: ev.Event) -> Score | None:
        """The new value of the objective that the event has, if any."""
        self._chief.read(event)
        if not isinstance(event, ev.Epoch | ev.Values):
            return None
        if isinstance(event, ev.Values) and event.rank != self._chief.rank:
            return None
        metrics = event.metrics
        self.names.update(dict.fromkeys(metrics))
        for name in (self._metric, *self._further_metrics):
            if name in metrics:
                value = metrics[name]
                self._newest[name] = nan if value is None else float(value)
        if self._metric not in metrics:
            return None
        step = self._step(event)
        if step in self._steps:
            return None
        self._steps.add(step)
        number = len(self._steps)
        label = f"epoch {event.epoch + 1}" if isinstance(event, ev.Epoch) else f"value {number}"
        return Score(number, self._newest[self._metric], label)

    def _step(self, event: ev.Epoch | ev.Values) -> tuple[Any, ...]:
        """The key of a step."""
        if isinstance(event, ev.Epoch):
            return "epoch", event.fit, event.epoch
        if event.step is not None:
            return "values", event.step
        if event.attempt != self._attempt:
            self._attempt, self._calls = event.attempt, 0
        self._calls += 1
        return "call", self._calls
