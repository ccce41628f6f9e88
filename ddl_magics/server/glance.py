"""How far a run is and how its loss went, from a bounded part of `events.jsonl`: what a row of the list shows.

A long file is looked at in as many places as the sparkline has points, never read from beginning to end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ddl_magics.server.eventfile import Event, parse

SPARK_POINTS = 32
#: Read in each of the places, and at the end, where the newest report of the chief must be among those of all ranks.
PLACE_BYTES = 32 * 2**10
END_BYTES = 256 * 2**10
#: A file up to this size is read as a whole: its places would be as many bytes.
WHOLE_BYTES = SPARK_POINTS * PLACE_BYTES

_CHIEF = 0


@dataclass(frozen=True)
class Glance:
    """`spark`: the loss over the run, at most `SPARK_POINTS` values. `epoch` and `step` are done ones of the fit."""

    spark: tuple[float, ...] = ()
    loss: float | None = None
    epoch: int = 0
    step: int = 0
    heard: float | None = None


def glance(path: Path) -> Glance:
    """The newest report of the chief that has a loss, and the losses of others before it."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size <= WHOLE_BYTES:
                reports = _thinned(_reports(file, 0, size))
            else:
                places = [size * k // (SPARK_POINTS - 1) for k in range(SPARK_POINTS - 1)]
                firsts = (next(iter(_reports(file, place, PLACE_BYTES)), None) for place in places)
                reports = [report for report in firsts if report is not None]
                reports += list(_reports(file, size - END_BYTES, END_BYTES))[-1:]
    except OSError:
        return Glance()
    if not reports:
        return Glance()
    last = reports[-1]
    steps = last["kind"] == "steps"
    return Glance(
        spark=tuple(float(f"{_loss(report):.5g}") for report in reports),
        loss=_loss(last),
        epoch=_count(last, "epoch") + (0 if steps else 1) if "epoch" in last else 0,
        step=_count(last, "step") + _count(last, "count") if steps else 0,
        heard=float(last["time"]),
    )


def _reports(file: BinaryIO, place: int, limit: int) -> Iterable[Event]:
    """The chief's events with a loss, of the whole lines in a part of the file."""
    file.seek(place)
    lines = file.read(limit).split(b"\n")[bool(place) : -1]
    for line in lines:
        if b'"loss":' not in line:
            continue
        event = parse(line)
        if event is not None and _tells(event):
            yield event


def _tells(event: Event) -> bool:
    metrics = event.get("metrics")
    if not isinstance(metrics, dict) or not isinstance(metrics.get("loss"), (int, float)):
        return False
    return event["kind"] == "epoch" or (event["kind"] in ("steps", "values") and event["rank"] == _CHIEF)


def _thinned(reports: Iterable[Event]) -> list[Event]:
    """Evenly chosen, the first and the last among them."""
    all_of_them = list(reports)
    last = len(all_of_them) - 1
    if last < SPARK_POINTS:
        return all_of_them
    return [all_of_them[k * last // (SPARK_POINTS - 1)] for k in range(SPARK_POINTS)]


def _loss(report: Event) -> float:
    return float(report["metrics"]["loss"])


def _count(report: Event, name: str) -> int:
    value = report.get(name)
    return value if isinstance(value, int) else 0
