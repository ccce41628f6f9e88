"""A run's values for tools that draw scalars: its epochs, the running values between them, each rank's resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import nan

from ddl_magics.dashboard.running_values import RunningValues
from ddl_magics.options.redaction import is_secret
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.chief import Chief
from ddl_magics.runtime.run_spec import RunSpec

#: Between two points of a rank's resources; MLflow samples its own as often.
SAMPLE_SECONDS = 10.0
GB = 1e9


@dataclass(frozen=True)
class Scalar:
    """name: "loss", "steps/loss" between epochs, "fit_1/loss" of a further fit, "system/rank_0/cpu_percent". step:
    counted over the fit; of "system/", seconds since the first sample. time: in seconds since the epoch."""

    name: str
    step: int
    value: float
    time: float


class ScalarReader:
    """Reads the scalars of a run from its events, one by one."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], int] = {}  # (fit, epoch) -> the steps before it
        self._steps_done: dict[int, int] = {}  # fit -> its steps so far
        self._running = RunningValues()
        self._chief, self._logged = Chief(), 0
        self._first_sample: float | None = None
        self._next_sample: dict[int, float] = {}  # rank -> when its next point is due

    def read(self, raw: ev.RawEvent) -> Iterator[Scalar]:
        """The scalars of the next event. None becomes NaN."""
        parsed = ev.parse(raw)
        self._chief.read(parsed)
        match parsed:
            case ev.Fit() as event:
                self._running.begin(event.models)
            case ev.Steps() as event:
                self._running.add(event)
                if event.rank == self._chief.rank:
                    yield from self._steps(event)
            case ev.Epoch() as event:
                yield from _of(event, _prefix(event.fit), event.epoch + 1)
            case ev.Sample() as event if event.time >= self._next_sample.get(event.rank, 0.0):
                yield from self._resources(event)
            case ev.Values() as event if event.rank == self._chief.rank:
                self._logged = self._logged + 1 if event.step is None else event.step
                yield from _of(event, "", self._logged)

    def _steps(self, event: ev.Steps) -> Iterator[Scalar]:
        fit = event.fit
        step = self._before.setdefault((fit, event.epoch), self._steps_done.get(fit, 0)) + event.steps_done
        self._steps_done[fit] = max(self._steps_done.get(fit, 0), step)
        for name, value in self._running.job(event):
            yield Scalar(f"{_prefix(fit)}steps/{name}", step, nan if value is None else value, event.time)

    def _resources(self, event: ev.Sample) -> Iterator[Scalar]:
        """What a rank's process uses. MLflow shows names that begin with "system/" as system metrics."""
        if self._first_sample is None:
            self._first_sample = event.time
        self._next_sample[event.rank] = event.time + SAMPLE_SECONDS
        gpus = event.gpus or []
        percents = [gpu["percent"] for gpu in gpus if gpu.get("percent") is not None]
        memories = [gpu["memory"] for gpu in gpus if gpu.get("memory") is not None]
        values = {
            "cpu_percent": event.cpu,
            "memory_gb": event.memory / GB if event.memory else None,  # 0 is that of a process that is ending
            "gpu_percent": sum(percents) / len(percents) if percents else None,
            "gpu_memory_gb": sum(memories) / GB if memories else None,
        }
        step = int(event.time - self._first_sample)
        for name, value in values.items():
            if value is not None:
                yield Scalar(f"system/rank_{event.rank}/{name}", step, float(value), event.time)


def scalars(events: Iterable[ev.RawEvent]) -> Iterator[Scalar]:
    """The scalars of a run's events, in their order. None becomes NaN."""
    reader = ScalarReader()
    for event in events:
        yield from reader.read(event)


def _prefix(fit: int) -> str:
    return f"fit_{fit}/" if fit else ""


def _of(event: ev.Epoch | ev.Values, prefix: str, step: int) -> Iterator[Scalar]:
    for name, value in event.metrics.items():
        yield Scalar(prefix + name, step, nan if value is None else float(value), event.time)


def parameters(spec: RunSpec) -> dict[str, str | int | float]:
    """The values of --set, and the options that shape the training; numbers as numbers."""
    names = ("strategy", "rule", "workers", "window", "batch_size", "seed", "compression", "data")
    options = {name: getattr(spec, name) for name in names if getattr(spec, name) is not None}
    of_cell = {name: _number(text) for name, text in (spec.set or {}).items() if not is_secret(name)}
    return {**options, **of_cell}


def _number(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
