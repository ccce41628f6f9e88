"""`Answer`: what a verb says to a person, and the same as a value for a program."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The answer of a verb; it prints as its text.

    Attributes:
        text: for a person.
        value: the same for a program: an object of JSON.
        status: the exit status of `ddl-magics`; 0 if what the verb was asked for was done.
    """

    text: str
    value: Mapping[str, Any]
    status: int = 0

    def __str__(self) -> str:
        return self.text


def as_json(value: Any) -> str:
    """One line of JSON that every parser reads: no NaN, no infinity, and no character that steers a terminal."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    """The value as types of JSON: numbers that are not finite are None, what JSON does not have is its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    return str(value) if isinstance(value, Path) else _plain(value.item() if hasattr(value, "item") else str(value))


def moment(seconds: float | None) -> str | None:
    """A time, in seconds since the epoch, as ISO 8601 in UTC: 2026-11-21T09:30:00+00:00."""
    return None if seconds is None else datetime.fromtimestamp(int(seconds), timezone.utc).isoformat()
