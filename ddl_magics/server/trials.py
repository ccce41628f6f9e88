"""What a search says of its trials, for their rows in the list: the same as its own table and chart. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddl_magics.dashboard.schema import ENDED_TRIAL_STATES
from ddl_magics.server.summary import SPARKLINE_POINTS, thin_out


@dataclass(frozen=True)
class Trial:
    """A trial in the stored view of its search.

    Attributes:
        state: how it ended: "finished", "pruned" or "failed"; None before.
        value: of the objective, or the first of several, as the search counts it.
        reason: why it was pruned or failed; else empty.
        curve: the objective after each epoch, at most `SPARKLINE_POINTS` values.
    """

    state: str | None = None
    value: float | None = None
    reason: str = ""
    curve: tuple[float, ...] = ()


def by_run(view: Mapping[str, Any]) -> dict[str, Trial]:
    """The trials of a stored view by the ids of their runs. Damaged fields are left out."""
    return {str(stored["run"]): _trial(stored) for stored in view["trials"] if stored.get("run")}


def _trial(stored: Mapping[str, Any]) -> Trial:
    state, value, reason, curve = (stored.get(name) for name in ("state", "value", "reason", "curve"))
    return Trial(
        state=str(state) if state in ENDED_TRIAL_STATES else None,
        value=_number(value),
        reason=reason if isinstance(reason, str) else "",
        curve=tuple(thin_out(_values(curve), SPARKLINE_POINTS)),
    )


def _values(curve: object) -> list[float]:
    points = curve if isinstance(curve, list) else []
    values = [_number(point[1]) for point in points if isinstance(point, list) and len(point) == 2]
    return [float(f"{value:.5g}") for value in values if value is not None]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
