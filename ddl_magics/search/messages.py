"""The messages of a search's live view: what has changed since the last one, as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from ddl_magics.runtime.cell.suggestions import Choices, Parameter
from ddl_magics.search.view import ENDED, SearchView, TrialRow

#: Points of a curve that are sent at most: every n-th, and the last.
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
        self._sent: dict[int, TrialRow] = {}

    def full(self, view: SearchView, now: float) -> Message:
        """All that a page needs. now: seconds since the epoch, as everywhere."""
        self._sent.clear()
        return {**self.update(view, now), "full": True, "info": _info(view, self._waiting)}

    def update(self, view: SearchView, now: float) -> Message:
        """What has changed since the last message."""
        self._number += 1
        trials = []
        for row in view.rows:
            # The time of a trial that runs is counted by the page.
            steady = row if row.state in ENDED else replace(row, seconds=0.0)
            if self._sent.get(row.number) != steady:
                self._sent[row.number] = steady
                trials.append(_trial(row, list(view.space)))
        state = {
            "state": view.state,
            "message": view.message,
            "about": view.about,
            "at": now,
            "seconds": view.seconds,
            "left": view.seconds_left,
            "front": [row.number for row in view.front],
        }
        return {"n": self._number, "full": False, "now": now, "state": state, "trials": trials}


def _info(view: SearchView, waiting: bool) -> dict[str, Any]:
    return {
        "id": view.id,
        "name": view.name,
        "metric": view.metric,
        "direction": view.direction,
        "others": [metric for metric, _ in view.others],
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
        "others": [_plain(value) for value in row.others],
        "params": [_plain(params.get(name)) for name in names],
        "epochs": row.epochs,
        "begun": row.begun,
        "seconds": row.seconds if row.state in ENDED else None,
        "reason": row.reason,
        "run": row.run,
        "tries": row.tries,
        "curve": [[epoch, _plain(value)] for epoch, value in _thinned(row.curve)],
    }


def _thinned(curve: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    every = -(-len(curve) // MAX_POINTS)
    return curve if every <= 1 else [point for i, point in enumerate(curve) if (len(curve) - 1 - i) % every == 0]


def _plain(value: Any) -> Any:
    """A value as JSON knows it: no NaN and no infinity."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if isfinite(value) else None
