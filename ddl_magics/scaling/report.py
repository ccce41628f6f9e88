"""`ScalingReport`: measurements with several numbers of workers, and predictions for others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ddl_magics import store
from ddl_magics.errors import NoPrediction
from ddl_magics.runs import Run
from ddl_magics.scaling.measurement import STEP_PARTS, MeasuredRun, mean_step
from ddl_magics.scaling.model import by_strategy
from ddl_magics.scaling.prediction import (
    Prediction,
    Predictions,
    WhatIf,
    formatted,
    most_beside_compute,
    table_of,
    time_of_step,
)
from ddl_magics.wording import aligned, counted

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: Metrics in the printed table, at most; `table` has all.
SHOWN_METRICS = 4
#: The phases of an epoch, which are columns. rest: outside of the steps.
EPOCH_PARTS = (*STEP_PARTS, "rest")
_COLOURS = ("#2f6fde", "#d9730d", "#d6336c", "#8b5cf6", "#a0a7b0")


@dataclass(frozen=True)
class Row:
    """A combination of strategy and workers.

    Attributes:
        runs: how many were measured.
        seconds, rate: training time, and samples per second over whole epochs: mean over the runs.
        seconds_dev, rate_dev: standard deviation over the runs; nan for one run.
        speedup: rate by that of one worker, or of the fewest that were measured, as if these scaled perfectly.
        efficiency: speedup by workers.
        parts: share of an epoch's time, by name of `EPOCH_PARTS`.
        metrics: name -> mean and standard deviation of the last value.
    """

    strategy: str
    workers: int
    runs: int
    seconds: float
    seconds_dev: float
    rate: float
    rate_dev: float
    speedup: float
    efficiency: float
    parts: Mapping[str, float]
    metrics: Mapping[str, tuple[float, float]]

    def to_record(self) -> dict[str, Any]:
        """The row as columns."""
        record = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("parts", "metrics")
        }
        record.update(self.parts)
        for name, (mean, deviation) in self.metrics.items():
            record.update({name: mean, f"{name}_dev": deviation})
        return record


class ScalingReport:
    """The measurements of `%ddl scale`.

    Attributes:
        name: of the run whose cell was measured.
        planned: how many runs there would be.
        runs: the measurement of each run, in their order.
        notes: lines on combinations that could not be measured.
    """

    def __init__(self, name: str) -> None:
        self.name, self.planned = name, 0
        self.runs: list[MeasuredRun] = []
        self.notes: list[str] = []

    @property
    def rows(self) -> list[Row]:
        """One row per strategy and number of workers."""
        return [row for runs in by_strategy(self.runs).values() for row in _rows(runs)]

    @property
    def table(self) -> Any:
        """`rows` as a DataFrame, or as a list of dicts where pandas is not installed.

        seconds is the training time, rate is in samples/s; compute, exchange, waiting, feeding and rest are shares of
        an epoch's time. Each metric has a column, and a second one NAME_dev for its standard deviation over seeds.
        """
        return table_of([row.to_record() for row in self.rows])

    def trained(self) -> dict[tuple[str, int], list[Run]]:
        """The runs themselves, by strategy and number of workers: their results, histories and models.

        A run that has been removed from the store is not among them.
        """
        runs_by_key: dict[tuple[str, int], list[Run]] = {(row.strategy, row.workers): [] for row in self.rows}
        for measured in self.runs:
            record = store.find_run(measured.run)
            if record is not None:
                runs_by_key[measured.strategy, measured.workers].append(Run.stored(record))
        return {key: runs for key, runs in runs_by_key.items() if runs}

    @property
    def warnings(self) -> list[str]:
        """A line for each strategy with which more workers were slower than fewer."""
        return [line for runs in by_strategy(self.runs).values() for line in _losses(runs)]

    def figure(self) -> go.Figure:
        """A plotly figure: the speed-up against the ideal, and what takes the time of an epoch."""
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots

        rows = self.rows
        figure = make_subplots(1, 2, subplot_titles=("speed-up", "where an epoch goes"), horizontal_spacing=0.12)
        max_workers = max((row.workers for row in rows), default=1)
        grey = {"color": "#a0a7b0", "dash": "dot"}
        figure.add_trace(
            go.Scatter(x=[1, max_workers], y=[1, max_workers], name="ideal", mode="lines", line=grey), 1, 1
        )
        for strategy in dict.fromkeys(row.strategy for row in rows):
            points = [row for row in rows if row.strategy == strategy]
            errors = {
                "type": "data",
                "array": [row.rate_dev / row.rate * row.speedup if row.runs > 1 else 0.0 for row in points],
            }
            x, y = [row.workers for row in points], [row.speedup for row in points]
            figure.add_trace(go.Scatter(x=x, y=y, name=strategy, mode="lines+markers", error_y=errors), 1, 1)
        labels = [f"{row.strategy}, {row.workers}" for row in rows]
        for name, colour in zip(EPOCH_PARTS, _COLOURS, strict=True):
            percentages = [100 * row.parts[name] for row in rows]
            bar = go.Bar(x=percentages, y=labels, orientation="h", name=name, marker_color=colour)
            figure.add_trace(bar, 1, 2)
        figure.update_xaxes(title_text="workers", dtick=1 if max_workers <= 8 else None, row=1, col=1)
        figure.update_xaxes(title_text="% of the time", range=[0, 100], row=1, col=2)
        figure.update_yaxes(rangemode="tozero", row=1, col=1)
        figure.update_yaxes(autorange="reversed", row=1, col=2)
        return figure.update_layout(
            barmode="stack", template="plotly_white", height=420, title=f"scaling of {self.name}"
        )

    def predict(
        self,
        workers: int | Iterable[int],
        batch: int | None = None,
        gbit: float | None = None,
        per_host: int | None = None,
        strategy: str | None = None,
        rows: int | None = None,
    ) -> Predictions:
        """What would other numbers of workers do? Predictions of a model that is fitted to `runs`, with 90 % bounds.

        Args:
            workers: one number or several.
            batch: rows in a step: of all workers with all-reduce and --global-batch, else of each. None: as measured.
            gbit: rate of each host's link in Gbit/s. None: the network that was measured.
            per_host: workers that share a host. None: one if `gbit` is given or each had its own host, and otherwise
                all of them, as measured.
            strategy: one of those that were measured. None: all.
            rows: of an epoch. None: as measured.

        Raises:
            NoPrediction: fewer than two numbers of workers were measured, or the batch has too few or too many rows.
        """
        numbers = [workers] if isinstance(workers, int) else list(workers)
        if min(numbers, default=0) < 1:
            raise NoPrediction("name numbers of workers above 0, such as workers=[4, 8].")
        predictions: list[Prediction] = []
        warnings: list[str] = []
        notes: list[str] = []
        for name, runs in by_strategy(self.runs).items():
            if strategy not in (None, name) or len({run.workers for run in runs}) < 2:
                continue
            what_if = WhatIf(runs, batch, gbit, per_host, rows)
            predictions += [what_if.prediction(number) for number in numbers]
            warnings += what_if.warnings(numbers)
            notes += what_if.notes(numbers)
        if not predictions:
            of = f" of {strategy}" if strategy else ""
            raise NoPrediction(
                f"a prediction needs runs{of} with two numbers of workers or more, such as --workers 1,2."
            )
        return Predictions(predictions, warnings, notes)

    def __str__(self) -> str:
        rows = self.rows
        if not rows:
            return "\n".join([f"{self.name}: nothing has been measured", *self.notes])
        metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))[:SHOWN_METRICS]
        head = ("strategy", "workers", "runs", "time", "samples/s", "speed-up", "efficiency", *EPOCH_PARTS, *metrics)
        lines = [
            (
                row.strategy,
                str(row.workers),
                str(row.runs),
                _with_deviation(row.seconds, row.seconds_dev, " s"),
                _with_deviation(row.rate, row.rate_dev),
                f"{row.speedup:.2f}",
                f"{row.efficiency:.0%}",
                *(f"{row.parts[name]:.0%}" for name in EPOCH_PARTS),
                *(_with_deviation(*row.metrics[name]) if name in row.metrics else "" for name in metrics),
            )
            for row in rows
        ]
        return "\n".join([*aligned([head, *lines]), *self.notes, *self.warnings])

    def __repr__(self) -> str:
        runs = f"{len(self.runs)} of {counted(self.planned, 'run')}" if self.planned else counted(len(self.runs), "run")
        return f"<scaling of {self.name}: {runs}>"


#: Phase of a step -> why it takes long, or what shortens it.
_REMEDIES = {
    "exchange": "a larger batch has more to compute between two exchanges",
    "waiting": "the workers are not equally fast, as where they share cores",
    "feeding": "batches come late, as where the data is slow to read or the workers share cores",
}


def _losses(runs: Sequence[MeasuredRun]) -> list[str]:
    """The warning of a strategy if its largest number of workers was slower than a smaller one."""
    rows = _rows(runs)
    fastest, largest = max(rows, key=lambda row: row.rate), max(rows, key=lambda row: row.workers)
    if fastest.workers >= largest.workers:
        return []
    step = mean_step([run.step for run in runs if run.workers == largest.workers])
    line = (
        f"warning: {largest.strategy} with {counted(largest.workers, 'worker')} is slower than with {fastest.workers}. "
        f"{time_of_step(step)}"
    )
    return [f"{line}: {_REMEDIES[most_beside_compute(step)]}"]


def _rows(runs: Sequence[MeasuredRun]) -> list[Row]:
    """The rows of one strategy, by number of workers."""
    rows = []
    grouped = {n: [run for run in runs if run.workers == n] for n in sorted({run.workers for run in runs})}
    fewest, base = next(iter(grouped.items()))
    single_rate = fmean(run.rate for run in base) / fewest
    for workers, group in grouped.items():
        rate, seconds = [run.rate for run in group], [run.seconds for run in group]
        speedup = fmean(rate) / single_rate
        rows.append(
            Row(
                strategy=group[0].strategy,
                workers=workers,
                runs=len(group),
                seconds=fmean(seconds),
                seconds_dev=_deviation(seconds),
                rate=fmean(rate),
                rate_dev=_deviation(rate),
                speedup=speedup,
                efficiency=speedup / workers,
                parts=_shares(group),
                metrics=_metrics(group),
            )
        )
    return rows


def _shares(runs: Sequence[MeasuredRun]) -> dict[str, float]:
    shares = dict.fromkeys(EPOCH_PARTS, 0.0)
    for run in runs:
        for name in STEP_PARTS:
            shares[name] += getattr(run.step, name) * run.steps_in_epoch / run.epoch_seconds / len(runs)
        shares["rest"] += run.rest / run.epoch_seconds / len(runs)
    return shares


def _metrics(runs: Sequence[MeasuredRun]) -> dict[str, tuple[float, float]]:
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    values = {name: [run.metrics[name] for run in runs if name in run.metrics] for name in names}
    return {name: (fmean(numbers), _deviation(numbers)) for name, numbers in values.items()}


def _deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else nan


def _with_deviation(value: float, deviation: float, unit: str = "") -> str:
    spread = "" if deviation != deviation else f" ± {_rounded(deviation)}"
    return f"{formatted(value)}{spread}{unit}"


def _rounded(deviation: float) -> str:
    """Two digits."""
    return f"{deviation:,.0f}" if deviation >= 10 else f"{deviation:.2g}"
