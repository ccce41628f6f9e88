"""`events.jsonl` in parts: from a sequence number or a place on, and never more than was asked for.

A line that is no event is skipped and counted; one that is half written is left for the next time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

#: A line that is longer than this, and than the limit of a batch, is not an event.
LINE_BYTES = 4 * 2**20
#: What is looked through from its begin; in anything larger the place is found by halving.
SCAN_BYTES = 64 * 2**10

Event = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Events in order; `place` is where the next batch begins, `more` says that whole lines wait there.

    `skipped` lines in it are no events.
    """

    events: list[Event]
    place: int
    more: bool
    skipped: int = 0


def read(path: Path, place: int, limit: int, holding: tuple[bytes, ...] = ()) -> Batch:
    """The events that begin at the byte `place`, from at most `limit` bytes, but one at least.

    With `holding`, lines with none of these bytes are passed over. A file that is not there has no events.
    """
    try:
        with open(path, "rb") as file:
            file.seek(place)
            data = file.read(limit)
            if b"\n" not in data and len(data) == limit:
                data += file.readline(LINE_BYTES)
            rest = file.read(1)
    except OSError:
        return Batch([], place, False)
    end = data.rfind(b"\n") + 1
    if not end:
        # Half of a line, or the begin of something that cannot be an event.
        return Batch([], place + len(data), True, skipped=1) if rest else Batch([], place, False)
    events: list[Event] = []
    skipped = 0
    for line in data[: end - 1].split(b"\n"):
        if not holding or any(word in line for word in holding):
            event = parse(line)
            if event is None:
                skipped += 1
            else:
                events.append(event)
    return Batch(events, place + end, bool(rest), skipped)


def next_line(path: Path, place: int) -> int:
    """Where the first line begins that begins at the byte `place` or after it."""
    if place <= 0:
        return 0
    try:
        with open(path, "rb") as file:
            file.seek(place - 1)
            return place - 1 + len(file.readline(LINE_BYTES))
    except OSError:
        return place


def place_after(path: Path, seq: int) -> int:
    """Where the first event with a number above `seq` begins, or the end of the last whole line."""
    try:
        with open(path, "rb") as file:
            return _place_after(file, seq) if seq > 0 else 0
    except OSError:
        return 0


def after(path: Path, seq: int, limit: int) -> Batch:
    """The events with a number above `seq`, from at most `limit` bytes, but one at least."""
    batch = read(path, place_after(path, seq), limit)
    while batch.more and not batch.events:
        batch = read(path, batch.place, limit)
    return batch


def every(path: Path, holding: tuple[bytes, ...] = (), limit: int = 2**20) -> Iterator[Event]:
    """All events, with `limit` bytes of them in memory at a time."""
    place, more = 0, True
    while more:
        batch = read(path, place, limit, holding)
        yield from batch.events
        place, more = batch.place, batch.more


def parse(line: bytes) -> Event | None:
    """The event of a line, or None. Numbers that JSON does not have are None."""
    try:
        event = json.loads(line, parse_constant=lambda _: None)
        fits = isinstance(event["seq"], int) and isinstance(event["kind"], str)
        fits = fits and isinstance(event["rank"], int) and isinstance(event["time"], (int, float))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return event if fits else None


def _place_after(file: BinaryIO, seq: int) -> int:
    low, high = 0, file.seek(0, 2)
    while high - low > SCAN_BYTES:
        middle = (low + high) // 2
        found = _event_from(file, middle, high)
        if found is None or found[1] > seq:
            high = middle
        else:
            low = found[0]
    file.seek(low)
    for line in iter(lambda: file.readline(LINE_BYTES), b""):
        event = parse(line)
        if not line.endswith(b"\n") or (event is not None and event["seq"] > seq):
            return low
        low += len(line)
    return low


def _event_from(file: BinaryIO, place: int, until: int) -> tuple[int, int] | None:
    """Place and number of the first event that begins after `place` and before `until`."""
    file.seek(place)
    file.readline(LINE_BYTES)
    while (begins := file.tell()) < until:
        line = file.readline(LINE_BYTES)
        event = parse(line)
        if event is not None:
            return begins, event["seq"]
        if not line:
            break
    return None
