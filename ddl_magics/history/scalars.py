"""A run's values over its steps, for tools that draw scalars: the job's epochs, and its running values between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

from ddl_magics.dashboard.running_values import RunningValues
from ddl_magics.options import RunSpec
from ddl_magics.options.redaction import is_secret
from ddl_magics.runtime import events as ev

_CHIEF = 0


@dataclass(frozen=True)
class Scalar:
    """name: "loss", "steps/loss" between epochs, "fit_1/loss" of a further fit. step: counted over the fit. time: in
    seconds since the epoch."""

    name: str
    step: int
    value: float
    time: float


def scalars(events: Iterable[Mapping[str, Any]]) -> Iterator[Scalar]:
    """Of a run's events, in their order. Values that are no numbers are NaN."""
    before: dict[tuple[int, int], int] = {}  # (fit, epoch) -> the steps before it
    done: dict[int, int] = {}  # fit -> its steps so far
    running = RunningValues()
    logged = 0
    for event in events:
        kind, rank = event.get("kind"), event.get("rank")
        if kind == "fit":
            running.begin(event)
        elif kind == "steps":
            running.add(event)
        if kind == "steps" and rank == _CHIEF:
            fit = event["fit"]
            step = before.setdefault((fit, event["epoch"]), done.get(fit, 0)) + ev.steps_done(event)
            done[fit] = max(done.get(fit, 0), step)
            for name, value in running.job(event):
                yield Scalar(f"{_prefix(fit)}steps/{name}", step, nan if value is None else value, event["time"])
        elif kind == "epoch":
            yield from _of(event, _prefix(event["fit"]), event["epoch"] + 1)
        elif kind == "values" and rank == _CHIEF:
            logged = logged + 1 if event.get("step") is None else event["step"]
            yield from _of(event, "", logged)


def _prefix(fit: int) -> str:
    return f"fit_{fit}/" if fit else ""


def _of(event: Mapping[str, Any], prefix: str, step: int) -> Iterator[Scalar]:
    for name, value in event["metrics"].items():
        yield Scalar(prefix + name, step, nan if value is None else float(value), event["time"])


def parameters(spec: RunSpec) -> dict[str, str | int | float]:
    """The values of --set, and the options that shape the training; numbers as numbers."""
    options = ("strategy", "rule", "workers", "window", "batch_size", "seed", "compression", "data")
    given = {name: getattr(spec, name) for name in options if getattr(spec, name) is not None}
    of_cell = {name: _number(text) for name, text in (spec.set or {}).items() if not is_secret(name)}
    return {**given, **of_cell}


def _number(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def results(histories: Iterable[Mapping[str, list[float]]]) -> dict[str, float]:
    """The last value of each metric of the last fit."""
    last: Mapping[str, list[float]] = next(reversed([h for h in histories if h]), {})
    return {name: values[-1] for name, values in last.items() if values and isfinite(values[-1])}
