"""The progress and the loss curve of a run, for its row in the list.

A long `events.jsonl` is sampled at as many offsets as the sparkline has points, and never read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ddl_magics.server.eventfile import Event
from ddl_magics.store.run_folder import parse_event

SPARKLINE_POINTS = 32
#: Bytes read at each offset, and at the end, where the newest loss of the chief is among the events of all ranks.
SAMPLE_BYTES = 32 * 2**10
TAIL_BYTES = 256 * 2**10
#: A file up to this size is read as a whole: the samples would be as many bytes.
WHOLE_BYTES = SPARKLINE_POINTS * SAMPLE_BYTES

_CHIEF = 0


@dataclass(frozen=True)
class Summary:
    """What the events say about the progress of a run.

    Attributes:
        sparkline: the loss over the run, at most `SPARKLINE_POINTS` values.
        loss: the newest loss.
        epoch: epochs done in the current fit.
        step: steps done in the current epoch.
        last_seen: time of the newest loss, in seconds since the epoch.
    """

    sparkline: tuple[float, ...] = ()
    loss: float | None = None
    epoch: int = 0
    step: int = 0
    last_seen: float | None = None


def summarize(path: Path) -> Summary:
    """The summary of an `events.jsonl`; an empty one if there is no file or no loss in it."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size <= WHOLE_BYTES:
                events = _thin_out(_losses(file, 0, size))
            else:
                offsets = [size * k // (SPARKLINE_POINTS - 1) for k in range(SPARKLINE_POINTS - 1)]
                samples = (next(iter(_losses(file, offset, SAMPLE_BYTES)), None) for offset in offsets)
                events = [event for event in samples if event is not None]
                events += list(_losses(file, size - TAIL_BYTES, TAIL_BYTES))[-1:]
    except OSError:
        return Summary()
    if not events:
        return Summary()
    last = events[-1]
    steps = last["kind"] == "steps"
    return Summary(
        sparkline=tuple(float(f"{_loss(event):.5g}") for event in events),
        loss=_loss(last),
        epoch=_count(last, "epoch") + (0 if steps else 1) if "epoch" in last else 0,
        step=_count(last, "step") + _count(last, "count") - _count(last, "earlier") if steps else 0,
        last_seen=float(last["time"]),
    )


def _losses(file: BinaryIO, offset: int, limit: int) -> Iterable[Event]:
    """The chief's events with a loss in the complete lines of a part of the file."""
    file.seek(offset)
    lines = file.read(limit).split(b"\n")[bool(offset) : -1]
    for line in lines:
        if b'"loss":' not in line:
            continue
        event = parse_event(line)
        if event is not None and _has_loss(event):
            yield event


def _has_loss(event: Event) -> bool:
    metrics = event.get("metrics")
    if not isinstance(metrics, dict) or not isinstance(metrics.get("loss"), (int, float)):
        return False
    return event["kind"] == "epoch" or (event["kind"] in ("steps", "values") and event["rank"] == _CHIEF)


def _thin_out(events: Iterable[Event]) -> list[Event]:
    """At most `SPARKLINE_POINTS` events, evenly spaced, with the first and the last."""
    found = list(events)
    last = len(found) - 1
    if last < SPARKLINE_POINTS:
        return found
    return [found[k * last // (SPARKLINE_POINTS - 1)] for k in range(SPARKLINE_POINTS)]


def _loss(event: Event) -> float:
    return float(event["metrics"]["loss"])


def _count(event: Event, name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0
