"""The charts of a run as plain numbers: what the figure and the saved block both draw. Bounded, whatever the run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal

import numpy as np

from .history import History
from .series import Series

#: Metrics that get a chart in what is kept; the live view and `run.metrics` have all of them.
METRIC_CHARTS = 5

Style = Literal["steps", "train", "validation", "plain"]


@dataclass(frozen=True)
class Line:
    """A line: x and y of equal length, y None where a value is not a number."""

    name: str
    style: Style
    x: list[float]
    y: list[float | None]


@dataclass(frozen=True)
class Chart:
    """A chart; `x_title` is the unit of its x."""

    title: str
    x_title: str
    lines: tuple[Line, ...]


def history_of(events: Iterable[Mapping[str, Any]]) -> History:
    """A history of all events of a run, with as many ranks as have spoken."""
    events = list(events)
    history = History(1 + max((event["rank"] for event in events), default=0))
    history.feed(events)
    return history


def charts(history: History) -> list[Chart]:
    """Loss first, then the other metrics, samples/s of the job, and the devices of the ranks."""
    names = sorted(history.metrics(), key=lambda name: name != "loss")[:METRIC_CHARTS]
    found = [_metric(history, name) for name in names]
    if "rate" in history.series:
        found.append(Chart("samples/s", "seconds", (_line("samples/s", "plain", history.series["rate"]),)))
    for key, title in (("gpu:", "GPU %"), ("cpu:", "CPU %")):
        lines = [
            _line(_rank_words(name.removeprefix(key)), "plain", series)
            for name, series in history.series.items()
            if name.startswith(key)
        ]
        if lines:
            found.append(Chart(title, "seconds", tuple(lines)))
            break
    return found


def _metric(history: History, name: str) -> Chart:
    lines = []
    unit = "steps"
    # Where epochs have ended, their exact values are the line; the running ones of each step stay behind it.
    whole = f"epochs:{name}" in history.series
    parts: tuple[tuple[str, str, Style], ...] = (
        (f"metric:{name}", f"{name} by step" if whole else name, "steps" if whole else "train"),
        (f"epochs:{name}", name, "train"),
        (f"metric:val_{name}", f"val_{name}", "validation"),
    )
    for key, words, style in parts:
        series = history.series.get(key)
        if series is None:
            continue
        epochs = _epochs(history, series.x)
        if epochs is not None:
            unit = "epochs"
        lines.append(_line(words, style, series, epochs))
    return Chart(name, unit, tuple(lines))


def _epochs(history: History, steps: list[float]) -> list[float] | None:
    """Steps as epochs done, or None where the run has none; an epoch under way ends as its length says."""
    starts = history.series.get("epoch")
    if starts is None:
        return None
    x, y = list(starts.x), list(starts.y)
    length = history.progress.steps or (x[-1] - x[-2] if len(x) > 1 else 0)
    if not length:
        return None
    # As far as the steps go, so that nothing is cut off at the end of the last epoch.
    more = max(1.0, (steps[-1] - x[-1]) / length)
    return [float(value) for value in np.interp(steps, [*x, x[-1] + more * length], [*y, y[-1] + more])]


def _line(name: str, style: Style, series: Series, x: list[float] | None = None) -> Line:
    xs = [_short(value) for value in (series.x if x is None else x)]
    return Line(name, style, xs, [None if isnan(value) else _short(value) for value in series.y])


def _rank_words(key: str) -> str:
    return f"rank {key}" if key.isdigit() else {"low": "lowest", "high": "highest"}.get(key, key)


def _short(value: float) -> float:
    """Five digits: what an eye can tell apart, in a fifth of the file."""
    return float(f"{value:.5g}")
