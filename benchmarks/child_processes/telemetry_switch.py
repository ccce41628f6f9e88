"""Turns the telemetry of a rank off and on again, and counts its CPU time, for telemetry_cost.py.

Off, nothing is measured or sent. Training itself needs two things of the callback that reports, and they stay: the
number of the step, which ranks compare in a collective, and the broadcast of the first weights. On, these are counted
as telemetry, too.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from ddl_magics.runtime.rank import reporter
from ddl_magics.runtime.training.fit_reporter import FitReporter

Methods = dict[type, dict[str, Callable[..., Any]]]


class _Spent:
    """CPU seconds of a thread in counted functions, of which one may call another."""

    seconds = 0.0
    counts = False  # in such a function


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _Spent.counts:
            return method(*args, **kwargs)
        _Spent.counts, begun = True, time.thread_time()
        try:
            return method(*args, **kwargs)
        finally:
            _Spent.seconds += time.thread_time() - begun
            _Spent.counts = False

    return call


_REPORTS = ("on_train_batch_begin", "on_train_batch_end")
_ON: Methods = {
    FitReporter: {name: _counted(vars(FitReporter)[name]) for name in _REPORTS},
    reporter.Reporter: {"emit": _counted(reporter.Reporter.emit)},
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


def spent() -> float:
    """CPU seconds of telemetry in this process since the last call."""
    seconds, _Spent.seconds = _Spent.seconds, 0.0
    return seconds
