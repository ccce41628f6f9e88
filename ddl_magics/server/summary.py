"""The progress and the loss curve of a run, for its row in the list.

A long `events.jsonl` is sampled at as many offsets as the sparkline has points, and never read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.chief import Chief
from ddl_magics.store.run_folder import parse_event

SPARKLINE_POINTS = 32
#: Bytes read at each offset, and at the end, where the newest loss of the chief is among the events of all ranks.
SAMPLE_BYTES = 32 * 2**10
TAIL_BYTES = 256 * 2**10
#: A file up to this size is read as a whole: the samples would be as many bytes.
WHOLE_BYTES = SPARKLINE_POINTS * SAMPLE_BYTES

T = TypeVar("T")

LossEvent = ev.Epoch | ev.Steps | ev.Values


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
            size, chief = file.seek(0, 2), Chief()
            if size <= WHOLE_BYTES:
                events = thin_out(list(_losses(file, chief, 0, size)), SPARKLINE_POINTS)
            else:
                offsets = [size * k // (SPARKLINE_POINTS - 1) for k in range(SPARKLINE_POINTS - 1)]
                samples = (next(iter(_losses(file, chief, offset, SAMPLE_BYTES)), None) for offset in offsets)
                events = [event for event in samples if event is not None]
                events += list(_losses(file, chief, size - TAIL_BYTES, TAIL_BYTES))[-1:]
    except OSError:
        return Summary()
    if not events:
        return Summary()
    newest = events[-1]
    return Summary(
        sparkline=tuple(float(f"{_loss(event):.5g}") for event in events),
        loss=_loss(newest),
        epoch=newest.epoch if isinstance(newest, ev.Steps) else newest.epoch + 1 if isinstance(newest, ev.Epoch) else 0,
        step=newest.steps_done if isinstance(newest, ev.Steps) else 0,
        last_seen=float(newest.time),
    )


def _losses(file: BinaryIO, chief: Chief, offset: int, limit: int) -> Iterable[LossEvent]:
    """The chief's events with a loss in the complete lines of a part of the file. chief: of the parts before."""
    file.seek(offset)
    lines = file.read(limit).split(b"\n")[bool(offset) : -1]
    for line in lines:
        if b'"loss":' not in line and b'"group"' not in line:
            continue
        raw = parse_event(line)
        event = None if raw is None else ev.parse(raw)
        if event is not None:
            chief.read(event)
        if not isinstance(event, LossEvent) or not isinstance(event.metrics.get("loss"), int | float):
            continue
        if event.rank == chief.rank or isinstance(event, ev.Epoch):  # of which the chief alone reports
            yield event


def thin_out(values: Sequence[T], limit: int) -> Sequence[T]:
    """At most `limit` of the values, evenly spaced, with the first and the last."""
    newest = len(values) - 1
    return values if newest < limit else [values[k * newest // (limit - 1)] for k in range(limit)]


def _loss(event: LossEvent) -> float:
    return float(event.metrics["loss"] or 0.0)
