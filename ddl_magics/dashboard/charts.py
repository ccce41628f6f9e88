"""The charts of a run as plain numbers of bounded size, drawn by the figure and by the static block."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isnan
from typing import Literal

import numpy as np

from ..runtime.events import RawEvent, parse
from .history import History
from .series import Series

#: Number of metrics that get a chart; the live view and `run.metrics` have all of them.
METRIC_CHARTS = 5

#: ranks: the lowest and the highest rank's running values; steps: the job's; train: exact values per epoch, or the
#: running ones if there are no others; plain: anything that is not a metric.
Style = Literal["ranks", "steps", "train", "validation", "plain"]


@dataclass(frozen=True)
class Line:
    """A line: x and y have equal length; y is None if the value is NaN."""

    name: str
    style: Style
    x: list[float]
    y: list[float | None]


@dataclass(frozen=True)
class Chart:
    """A chart; `x_title` is the unit of x."""

    title: str
    x_title: str
    lines: tuple[Line, ...]


def history_of(events: Iterable[RawEvent]) -> History:
    """The history of all events of a run, with as many ranks as the events name."""
    events = list(events)
    history = History(1 + max((event.rank for event in map(parse, events)), default=0))
    history.feed(events)
    return history


def charts(history: History) -> list[Chart]:
    """The loss, the other metrics, samples/s of the job, the number of workers where they come and go, and the GPUs
    (else the CPUs) of the ranks."""
    names = sorted(history.metrics(), key=lambda name: name != "loss")[:METRIC_CHARTS]
    drawn_charts = [_metric(history, name) for name in names]
    if "rate" in history.series:
        drawn_charts.append(Chart("samples/s", "seconds", (_line("samples/s", "plain", history.series["rate"]),)))
    if "workers" in history.series:
        line = _line("workers", "plain", history.series["workers"])
        drawn_charts.append(Chart("workers", "seconds", (_stepped(line),)))
    for key, title in (("gpu:", "GPU %"), ("cpu:", "CPU %")):
        lines = [
            _line(_rank_title(name.removeprefix(key)), "plain", series)
            for name, series in history.series.items()
            if name.startswith(key)
        ]
        if lines:
            drawn_charts.append(Chart(title, "seconds", tuple(lines)))
            break
    return drawn_charts


def _metric(history: History, name: str) -> Chart:
    lines = []
    unit = "steps"
    # Once there are exact values per epoch they are the line, and the running values are drawn faintly behind it.
    exact = f"epochs:{name}" in history.series
    line_specs: tuple[tuple[str, str, Style], ...] = (
        (f"low:{name}", "lowest rank", "ranks"),
        (f"high:{name}", "highest rank", "ranks"),
        (f"metric:{name}", f"{name} by step" if exact else name, "steps" if exact else "train"),
        (f"epochs:{name}", name, "train"),
        (f"metric:val_{name}", f"val_{name}", "validation"),
    )
    for key, title, style in line_specs:
        series = history.series.get(key)
        if series is None:
            continue
        epochs = _epochs(history, series.x)
        if epochs is not None:
            unit = "epochs"
        lines.append(_line(title, style, series, epochs))
    return Chart(name, unit, tuple(lines))


def _epochs(history: History, steps: list[float]) -> list[float] | None:
    """Steps converted to epochs done; None if the run has no epochs.

    The last epoch is extrapolated with the announced number of steps, or with the length of the epoch before.
    """
    starts = history.series.get("epoch")
    if starts is None:
        return None
    x, y = list(starts.x), list(starts.y)
    length = history.progress.steps or (x[-1] - x[-2] if len(x) > 1 else 0)
    if not length:
        return None
    # At least to the last step, so that nothing is clipped at the end of the last epoch.
    extra_epochs = max(1.0, (steps[-1] - x[-1]) / length)
    return [float(value) for value in np.interp(steps, [*x, x[-1] + extra_epochs * length], [*y, y[-1] + extra_epochs])]


def _line(name: str, style: Style, series: Series, x: list[float] | None = None) -> Line:
    xs = [_round(value) for value in (series.x if x is None else x)]
    return Line(name, style, xs, [None if isnan(value) else _round(value) for value in series.y])


def _stepped(line: Line) -> Line:
    """The line as steps: a value holds until the next one."""
    points = [(x, y) for i, x in enumerate(line.x) for y in dict.fromkeys(line.y[max(i - 1, 0) : i + 1])]
    return replace(line, x=[x for x, _ in points], y=[y for _, y in points])


def _rank_title(key: str) -> str:
    return f"rank {key}" if key.isdigit() else {"low": "lowest", "high": "highest"}.get(key, key)


def _round(value: float) -> float:
    """Five digits are enough for a chart and make the file five times smaller."""
    return float(f"{value:.5g}")
