"""Keras' logs as plain numbers."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np


def finite_numbers(logs: Any) -> dict[str, float | None]:
    """Keras' logs as JSON numbers; None for a number that is not finite."""
    numbers: dict[str, float | None] = {}
    for name, value in (logs or {}).items():
        with contextlib.suppress(TypeError, ValueError):
            number = float(np.asarray(value))
            numbers[name] = number if np.isfinite(number) else None
    return numbers


def flat_logs(logs: dict[str, Any]) -> dict[str, Any]:
    """Logs without nested dicts: Keras hands on the results of all compiled metrics as one dict."""
    flat: dict[str, Any] = {}
    for name, value in logs.items():
        flat.update(flat_logs(value) if isinstance(value, dict) else {name: value})
    return flat
