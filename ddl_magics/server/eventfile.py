"""Reads `events.jsonl` in batches of bounded size, from a byte offset or a sequence number.

A line that is not an event is skipped and counted. An incomplete last line is left for the next read. The owner of a
long run sometimes replaces the file by one with old events merged, so a byte offset is valid in one open file only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ddl_magics.runtime.events import RawEvent, parse
from ddl_magics.store.owned_folder import MAX_LINE_BYTES, lines_of
from ddl_magics.store.run_folder import parse_event

#: A file up to this size is scanned from its start; in a larger one the offset is found by bisection.
SCAN_BYTES = 64 * 2**10
MARK_BYTES = 256


@dataclass(frozen=True)
class Batch:
    """Events in order, and where the next batch begins.

    Attributes:
        offset: the byte at which the next batch begins.
        has_more: there are complete lines from `offset` on.
        skipped: the number of lines that are not events.
    """

    events: list[RawEvent]
    offset: int
    has_more: bool
    skipped: int = 0


def read(file: BinaryIO, offset: int, limit: int, containing: tuple[bytes, ...] = ()) -> Batch:
    """About `limit` bytes of events from the byte `offset`, but at least one line.

    With `containing`, only lines that contain one of these strings. Raises OSError.
    """
    file.seek(offset)
    data = file.read(limit)
    if b"\n" not in data and len(data) == limit:
        data += file.readline(MAX_LINE_BYTES)
    next_byte = file.read(1)
    complete_bytes = data.rfind(b"\n") + 1
    if not complete_bytes:
        # Either an incomplete last line, or a line that is too long to be an event.
        return Batch([], offset + len(data), True, skipped=1) if next_byte else Batch([], offset, False)
    events: list[RawEvent] = []
    skipped = 0
    for line in data[: complete_bytes - 1].split(b"\n"):
        if not containing or any(needle in line for needle in containing):
            event = parse_event(line)
            if event is None:
                skipped += 1
            else:
                events.append(event)
    return Batch(events, offset + complete_bytes, bool(next_byte), skipped)


def next_line(file: BinaryIO, offset: int) -> int:
    """The offset of the first line that begins at `offset` or later. Raises OSError."""
    if offset <= 0:
        return 0
    file.seek(offset - 1)
    return offset - 1 + len(file.readline(MAX_LINE_BYTES))


def bytes_before(file: BinaryIO, offset: int) -> bytes:
    """Up to `MARK_BYTES` before the byte `offset`: they identify the file, because events have times."""
    begin = file.seek(max(0, offset - MARK_BYTES))
    return file.read(offset - begin)


def seq_before(file: BinaryIO, offset: int) -> int:
    """The sequence number of the last event that begins before the byte `offset`; 0 if there is none."""
    begin = offset
    while begin > 0:
        begin = max(0, begin - SCAN_BYTES)
        file.seek(begin)
        lines = file.read(offset - begin).split(b"\n")[bool(begin) :]
        for line in reversed(lines):
            event = parse_event(line)
            if event is not None:
                return parse(event).seq
    return 0


def read_after(path: Path, seq: int, limit: int) -> Batch:
    """About `limit` bytes of events with a sequence number above `seq`, but at least one event."""
    try:
        with open(path, "rb") as file:
            batch = read(file, offset_after(file, seq), limit)
            while batch.has_more and not batch.events:
                batch = read(file, batch.offset, limit)
            return batch
    except OSError:
        return Batch([], 0, False)


def iterate(path: Path, containing: tuple[bytes, ...] = (), limit: int = 2**20) -> Iterator[RawEvent]:
    """All events, read in batches of about `limit` bytes."""
    offset, has_more = 0, True
    with contextlib.suppress(OSError), open(path, "rb") as file:
        while has_more:
            batch = read(file, offset, limit, containing)
            yield from batch.events
            offset, has_more = batch.offset, batch.has_more


def offset_after(file: BinaryIO, seq: int) -> int:
    """The offset of the first event with a sequence number above `seq`, or of the end of the last complete line.

    Raises OSError.
    """
    if seq <= 0:
        return 0
    low, high = 0, file.seek(0, 2)
    while high - low > SCAN_BYTES:
        middle = (low + high) // 2
        next_event = _first_event(file, middle, high)
        if next_event is None or next_event[1] > seq:
            high = middle
        else:
            low = next_event[0]
    file.seek(low)
    for line in lines_of(file):
        event = parse_event(line)
        if not line.endswith(b"\n") or (event is not None and parse(event).seq > seq):
            return low
        low += len(line)
    return low


def _first_event(file: BinaryIO, offset: int, stop: int) -> tuple[int, int] | None:
    """Offset and sequence number of the first event that begins between `offset` and `stop`."""
    file.seek(offset)
    file.readline(MAX_LINE_BYTES)
    while (begin := file.tell()) < stop:
        line = file.readline(MAX_LINE_BYTES)
        event = parse_event(line)
        if event is not None:
            return begin, parse(event).seq
        if not line:
            break
    return None
