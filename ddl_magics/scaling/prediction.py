"""Predictions for other numbers of workers, batches and networks, as rows and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, log10
from statistics import fmean
from typing import Any

from ddl_magics.dashboard.text import number
from ddl_magics.errors import NoPrediction
from ddl_magics.scaling.measurement import STEP_PARTS, MeasuredRun, Step
from ddl_magics.scaling.model import Estimate, Fitted, Setting, per_host
from ddl_magics.wording import aligned, counted

#: How often a batch is doubled to find one with which more workers pay off.
DOUBLINGS = 12
#: Predictions for more than so many times the measured workers get a note.
FARTHEST = 4
#: Segments of a run that are needed to tell how much its steps vary.
FEWEST_SEGMENTS = 4


@dataclass(frozen=True)
class Prediction:
    """What so many workers would do. rate, seconds: samples per second over whole epochs, and seconds of an epoch.

    batch: rows of all workers in a step. speedup: times the predicted rate of one worker with the same batch.
    """

    strategy: str
    workers: int
    batch: int
    rate: Estimate
    seconds: Estimate
    speedup: float
    step: Step

    @property
    def efficiency(self) -> float:
        return self.speedup / self.workers

    def to_record(self) -> dict[str, Any]:
        """The prediction as columns."""
        return {
            "strategy": self.strategy,
            "workers": self.workers,
            "batch": self.batch,
            "rate": self.rate.value,
            "rate_low": self.rate.low,
            "rate_high": self.rate.high,
            "epoch_seconds": self.seconds.value,
            "epoch_low": self.seconds.low,
            "epoch_high": self.seconds.high,
            "speedup": self.speedup,
            "efficiency": self.efficiency,
            **{name: getattr(self.step, name) for name in STEP_PARTS},
        }


class Predictions:
    """Predictions. `warnings`: lines on slower training with more workers. `notes`: lines on what the bounds miss."""

    def __init__(self, rows: Sequence[Prediction], warnings: Sequence[str], notes: Sequence[str]) -> None:
        self.rows, self.warnings, self.notes = tuple(rows), tuple(warnings), tuple(notes)

    @property
    def table(self) -> Any:
        """A DataFrame, or a list of dicts where pandas is not installed: rate in samples/s, times in seconds."""
        return table_of([row.to_record() for row in self.rows])

    def __repr__(self) -> str:
        head = ("strategy", "workers", "batch", "samples/s", "epoch", "speed-up", "efficiency")
        lines = [
            (
                row.strategy,
                str(row.workers),
                str(row.batch),
                _estimate(row.rate),
                _estimate(row.seconds, " s"),
                f"{row.speedup:.2f}",
                f"{row.efficiency:.0%}",
            )
            for row in self.rows
        ]
        return "\n".join([*aligned([head, *lines]), *self.warnings, *self.notes])


class WhatIf:
    """The predictions of one strategy's model in one setting; the arguments are those of `ScalingReport.predict`."""

    def __init__(
        self,
        runs: Sequence[MeasuredRun],
        batch: int | None,
        gbit: float | None,
        on_a_host: int | None,
        rows: int | None,
    ) -> None:
        self._runs, self._fitted, self._gbit = runs, Fitted(runs, rows), gbit
        self._global = runs[0].sums_gradients or _share_a_batch(runs)
        self._batch = batch
        apart = gbit is not None or all(per_host([run]) == 1 for run in runs)
        self._per_host = on_a_host or (1 if apart else None)

    def _batch_of(self, workers: int) -> float:
        """Rows of all workers in a step."""
        if self._batch is not None:
            return self._batch if self._global else self._batch * workers
        rows = [run.step.rows for run in self._runs]
        return fmean(run.step.rows * run.workers for run in self._runs) if self._global else fmean(rows) * workers

    def _setting(self, workers: int, batch: float | None = None) -> Setting:
        """batch: rows of all workers in a step; None: that of `WhatIf`."""
        on_a_host = min(workers, self._per_host or workers)
        rows = self._batch_of(workers) if batch is None else batch
        return Setting(workers, rows / workers, on_a_host, self._gbit)

    def prediction(self, workers: int) -> Prediction:
        """Raises NoPrediction for a batch that the workers cannot share."""
        setting = self._setting(workers)
        if not 1 <= setting.rows <= self._fitted.rows / workers:
            rows = self._fitted.rows
            shared = f"a batch of {self._batch_of(workers):,.0f} rows in epochs of {rows:,.0f}"
            lowest, highest = (workers, rows) if self._global else (1, rows // workers)
            hint = f"give batch= from {lowest} to {highest:.0f}" if lowest <= highest else "there are too few rows"
            raise NoPrediction(f"{counted(workers, 'worker')} cannot share {shared}: {hint}.")
        rate, rows = self._fitted.rate(setting), self._fitted.rows
        seconds = Estimate(rows / rate.value, rows / rate.high, rows / max(rate.low, 1e-9))
        single_rate = self._fitted.rate(self._setting(1)).value
        step, batch = self._fitted.model.step(setting), round(self._batch_of(workers))
        return Prediction(self._runs[0].strategy, workers, batch, rate, seconds, rate.value / single_rate, step)

    def _rate(self, workers: int, batch: float | None = None) -> float:
        setting = self._setting(workers, batch)
        return self._fitted.rows / self._fitted.model.epoch_seconds(setting, self._fitted.rows)

    def notes(self, numbers: Iterable[int]) -> list[str]:
        """What makes the predictions less sure than their bounds."""
        runs, name = self._runs, self._runs[0].strategy
        measured, largest = max(run.workers for run in runs), max(numbers)
        problems = []
        if self._gbit is not None and not self._fitted.knows_bytes:
            problems.append("gbit changes nothing, as it is not known how many bytes a step exchanges")
        if largest > FARTHEST * measured:
            problems.append(f"{largest} workers are far from the {measured} that were measured")
        if any(len(run.steps) < FEWEST_SEGMENTS for run in runs):
            problems.append("a run was too short to tell how much its steps vary: train more epochs")
        if len(runs) == len({run.workers for run in runs}):
            problems.append("the bounds do not have how much runs differ: measure with --seeds 3")
        return [f"note: {name}: {line}" for line in problems]

    def warnings(self, numbers: Iterable[int]) -> list[str]:
        """A line if the largest number is slower than a smaller one, with the batch from which on it is not."""
        largest = max(numbers)
        fewer = [n for n in _powers_of_two_below(largest) if self._rate(n) > self._rate(largest)]
        if not fewer:
            return []
        best = max(fewer, key=self._rate)
        step = self._fitted.model.step(self._setting(largest))
        line = (
            f"warning: {counted(largest, 'worker')} would be slower than {best}: {formatted(self._rate(largest))} "
            f"against {formatted(self._rate(best))} samples/s. {time_of_step(step)}"
        )
        batch = self._batch_that_pays(largest) if self._global else None
        return [f"{line}; from a batch of about {batch} rows on they would pay" if batch else line]

    def _batch_that_pays(self, workers: int) -> int | None:
        """The smallest doubled batch with which so many workers are faster than fewer."""
        batch = self._batch_of(workers)
        for _ in range(DOUBLINGS):
            batch = round(2 * batch)
            if batch > self._fitted.rows:
                return None
            if all(self._rate(workers, batch) > self._rate(n, batch) for n in _powers_of_two_below(workers)):
                return batch
        return None


def _share_a_batch(runs: Sequence[MeasuredRun]) -> bool:
    """Whether the rows of all workers in a step are about the same in all runs, and not those of each worker."""

    def spread(rows: Sequence[float]) -> float:
        return max(rows) / min(rows)

    return spread([run.step.rows * run.workers for run in runs]) < spread([run.step.rows for run in runs])


def _powers_of_two_below(limit: int) -> list[int]:
    """1, 2, 4, ... below `limit`."""
    return [2**power for power in range(limit.bit_length()) if 2**power < limit]


def time_of_step(step: Step) -> str:
    """A sentence: how long a worker computes in a step, and what takes the most time besides."""
    largest = most_beside_compute(step)
    return (
        f"In a step a worker computes {_milliseconds(step.compute)} on {formatted(round(step.rows))} rows, and spends "
        f"{_milliseconds(getattr(step, largest))} on {largest}"
    )


def most_beside_compute(step: Step) -> str:
    """The part of `STEP_PARTS` that takes the most time of a step, but for computing."""
    return max((name for name in STEP_PARTS if name != "compute"), key=lambda name: getattr(step, name))


def table_of(records: list[dict[str, Any]]) -> Any:
    try:
        import pandas as pd
    except ImportError:
        return records
    return pd.DataFrame(records)


def formatted(value: float) -> str:
    """A number with its thousands, or with four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else number(value)


def _estimate(estimate: Estimate, unit: str = "") -> str:
    """With as many digits as the bounds allow: two of their distance."""
    width = estimate.high - estimate.low
    digits = 1 - floor(log10(width)) if width > 0 else 3
    value, low, high = (formatted(round(bound, digits)) for bound in (estimate.value, estimate.low, estimate.high))
    return f"{value}{unit} ({low} to {high})"


def _milliseconds(seconds: float) -> str:
    return f"{number(1000 * seconds)} ms"
