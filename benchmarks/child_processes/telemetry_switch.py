"""Turns the telemetry of a rank off and on again, for telemetry_cost.py.

Off, nothing is measured or sent. Training itself needs two things of the callback that reports, and they stay: the
number of the step, which ranks compare in a collective, and the broadcast of the first weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddl_magics.runtime.rank import reporter
from ddl_magics.runtime.training.fit_reporter import FitReporter

Methods = dict[type, dict[str, Callable[..., Any]]]

_ON: Methods = {
    FitReporter: {name: vars(FitReporter)[name] for name in ("on_train_batch_begin", "on_train_batch_end")},
    reporter.Reporter: {"emit": reporter.Reporter.emit},
}


def _begin(self: Any, batch: int, logs: Any = None) -> None:
    self._progress.step = batch


def _end(self: Any, batch: int, logs: Any = None) -> None:
    self._progress.step = batch + 1
    self._align()


def _emit(self: Any, kind: str, **fields: Any) -> None:
    pass


_OFF: Methods = {
    FitReporter: {"on_train_batch_begin": _begin, "on_train_batch_end": _end},
    reporter.Reporter: {"emit": _emit},
}


def turn(on: bool) -> None:
    """Replace the methods that report, from the next step on."""
    for owner, methods in (_ON if on else _OFF).items():
        for name, method in methods.items():
            setattr(owner, name, method)
