"""The messages of a search's live view: the changes since the last message, as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from ddl_magics.runtime.cell.suggestions import Choices, Parameter
from ddl_magics.search.view import ENDED_STATES, SearchView, TrialRow

#: Points of a curve in a message, at most: every n-th, and the last.
MAX_POINTS = 60
#: Significant digits of the numbers that are drawn.
DIGITS = 6

Message = dict[str, Any]


class Packer:
    """Makes the messages of one search, numbered from 1: `SearchMessage` of dashboard/schema.py."""

    def __init__(self, waiting: bool) -> None:
        """waiting: the cell blocks until the search ends."""
        self._waiting = waiting
        self._number = 0
        self._page_rows: dict[int, TrialRow] = {}

    def full(self, view: SearchView, timestamp: float) -> Message:
        """All that a page needs. timestamp: seconds since the epoch, as everywhere."""
        self._page_rows.clear()
        return {**self.update(view, timestamp), "full": True, "info": _info(view, self._waiting)}

    def update(self, view: SearchView, timestamp: float) -> Message:
        """The changes since the last message."""
        self._number += 1
        trials = []
        for row in view.rows:
            # The time of a trial that runs is counted by the page.
            steady = row if row.state in ENDED_STATES else replace(row, seconds=0.0)
            if self._page_rows.get(row.number) != steady:
                self._page_rows[row.number] = steady
                trials.append(_trial(row, list(view.space)))
        state = {
            "state": view.state,
            "message": view.message,
            "about": view.description,
            "at": timestamp,
            "seconds": view.seconds,
            "left": view.seconds_left,
            "front": [row.number for row in view.front],
        }
        return {"n": self._number, "full": False, "now": timestamp, "state": state, "trials": trials}


def _info(view: SearchView, waiting: bool) -> dict[str, Any]:
    return {
        "id": view.id,
        "name": view.name,
        "metric": view.metric,
        "direction": view.direction,
        "others": [metric for metric, _ in view.further_objectives],
        "planned": view.planned,
        "axes": [_axis(name, parameter) for name, parameter in view.space.items()],
        "waiting": waiting,
    }


def _axis(name: str, parameter: Parameter) -> dict[str, Any]:
    if isinstance(parameter, Choices):
        return {"name": name, "low": 0, "high": 1, "log": False, "choices": [_plain(c) for c in parameter.choices]}
    return {"name": name, "low": parameter.low, "high": parameter.high, "log": parameter.log, "choices": None}


def _trial(row: TrialRow, names: Sequence[str]) -> dict[str, Any]:
    params: Mapping[str, Any] = row.params
    return {
        "number": row.number,
        "state": row.state,
        "value": None if row.value is None else _plain(row.value),
        "others": [_plain(value) for value in row.further_values],
        "params": [_plain(params.get(name)) for name in names],
        "epochs": row.epochs,
        "begun": row.begun,
        "seconds": row.seconds if row.state in ENDED_STATES else None,
        "reason": row.reason,
        "run": row.run,
        "tries": row.tries,
        "curve": [[epoch, _plain(value)] for epoch, value in _thinned(row.curve)],
    }


def _thinned(curve: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    every = -(-len(curve) // MAX_POINTS)
    return curve if every <= 1 else [point for i, point in enumerate(curve) if (len(curve) - 1 - i) % every == 0]


def _plain(value: Any) -> Any:
    """A value for JSON, which has no NaN and no infinity."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if isfinite(value) else None
