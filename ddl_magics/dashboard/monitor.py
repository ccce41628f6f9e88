"""The view of a monitor: its newest event of the kind `watch`, in bounded size. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..runtime.events import Watch
from ..runtime.monitoring.drift import MIN_ROWS
from .loglines import NAME_CHARACTERS, clean
from .markup import PRE, TABLE

#: Number of watched columns and of reasons in a view, and of characters of the cell that trains again.
MAX_COLUMNS, MAX_REASONS, CELL_CHARACTERS = 12, 5, 3_000
MAX_BINS = 24


def monitor_view(event: Watch) -> dict[str, Any]:
    """`MonitorView` of `schema.py`. Damaged fields of an event count as missing."""
    columns = [_column(column) for column in event.things[:MAX_COLUMNS] if isinstance(column.get("name"), str)]
    lines, error, advice = event.lines, event.error, event.advice
    return {
        "model": clean(event.model, NAME_CHARACTERS),
        "log": clean(event.log, 300),
        "window": event.window,
        "rows": event.rows,
        "wanted": event.wanted,
        "requests": event.totals.get("requests", 0),
        "errors": event.totals.get("errors", 0),
        "late": event.totals.get("late", 0),
        "doubles": event.totals.get("double", 0),
        "unreadable": event.totals.get("unreadable", 0),
        "severe": event.bounds.get("severe", 0.25),
        **{name: _numbers(lines.get(name)) for name in ("time", "rate", "p50", "p95", "p99")},
        "things": columns,
        "note": _note(event.things),
        "hidden": event.hidden + max(0, len(event.things) - MAX_COLUMNS),
        "error": None if error is None else _error(error),
        "reasons": [clean(str(text), 300) for text in (advice or {}).get("reasons", [])][:MAX_REASONS],
        "cell": str((advice or {}).get("cell", ""))[:CELL_CHARACTERS],
    }


def _column(column: Mapping[str, Any]) -> dict[str, Any]:
    before, current = _numbers(column.get("before"))[:MAX_BINS], _numbers(column.get("now"))[:MAX_BINS]
    level = column.get("level")
    return {
        "name": clean(column["name"], NAME_CHARACTERS),
        "output": column.get("output") is True,
        "level": level if level in ("drift", "severe") else "none",
        **{name: _number(column.get(name)) for name in ("psi", "ks", "threshold", "since")},
        "nulls": _number(column.get("nulls")) or 0.0,
        "before": [value or 0.0 for value in _shares(before)],
        "now": [value or 0.0 for value in _shares(current)],
    }


def _note(columns: Sequence[Mapping[str, Any]]) -> str:
    """Why columns have no PSI, in one sentence; empty where all have one."""
    counts = [tuple(sum(filter(None, _numbers(column.get(name)))) for name in ("before", "now")) for column in columns]
    if all(_number(column.get("psi")) is not None for column in columns):
        return ""
    trained, current = (max(rows) for rows in zip(*counts, strict=True))
    if trained < MIN_ROWS:
        return f"No PSI and KS: they need {MIN_ROWS} rows of the training, and its reference has {trained:,.0f}."
    if current < MIN_ROWS:
        return f"No PSI and KS yet: they need {MIN_ROWS} rows of requests, and {current:,.0f} have come."
    return f"Inputs without PSI and KS have fewer than {MIN_ROWS} rows."


def _shares(counts: list[float | None]) -> list[float]:
    total = sum(count or 0.0 for count in counts) or 1.0
    return [round((count or 0.0) / total, 4) for count in counts]


def _error(error: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": clean(str(error.get("name", "error")), NAME_CHARACTERS),
        "mean": _number(error.get("mean")) or 0.0,
        "before": _number(error.get("before")),
        "time": _numbers(error.get("time")),
        "values": _numbers(error.get("values")),
    }


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) else None


def _numbers(values: Any) -> list[float | None]:
    return [_number(value) for value in values] if isinstance(values, list) else []


def html(view: Mapping[str, Any]) -> str:
    """A `MonitorView` as a table, readable without a script and without styles."""
    heads = "".join(f'<th title="{hint}">{title}</th>' for title, hint in _HINTS.items())
    rows = "".join(
        f"<tr><td>{'output: ' if column['output'] else ''}{escape(column['name'])}</td>"
        f"<td>{_two_decimals(column['psi'])}</td>"
        f"<td>{_two_decimals(column['ks'])}</td><td>{column['nulls']:.0%}</td><td>{_LEVELS[column['level']]}</td></tr>"
        for column in view["things"]
    )
    counts = f"{_counted(view['requests'], 'request')}, {_counted(view['errors'], 'error')}"
    sections = [
        f"{TABLE}<tr>{heads}</tr>{rows}</table>",
        f"<p>{counts}, drift in the last {_counted(view['rows'], 'row')}</p>",
        f"<p>{escape(view['note'])}</p>" if view["note"] else "",
    ]
    if view["reasons"]:
        sections.append(f'<p><b style="color:#c92a2a">TRAIN AGAIN</b> {escape("; ".join(view["reasons"]))}</p>')
        cell = f"{PRE}{escape(view['cell'])}</pre>"
        sections.append(f"<details><summary>The cell that trains it again</summary>{cell}</details>")
    return "".join(sections)


#: Heading -> its tooltip; the front end's table has the same.
_HINTS = {
    "input, by drift": "the inputs and outputs of the model, those that have moved most first",
    "PSI": "population stability index: how far the shares of the bins have moved since the training; 0 is not at all",
    "KS": "Kolmogorov-Smirnov: the largest difference of the two cumulative distributions, from 0 to 1",
    "nulls": "share of the rows without a value",
    "drift": "whether it has moved further than chance and custom allow",
}
_LEVELS = {"none": "", "drift": "drift", "severe": "severe drift"}


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _two_decimals(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
