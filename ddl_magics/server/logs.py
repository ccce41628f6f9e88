"""Pages of the ranks' output. The sequence number of an event is the start of the next page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, BinaryIO

from ddl_magics.dashboard.loglines import clean
from ddl_magics.runtime import events as ev
from ddl_magics.server import eventfile

#: Text in one page, approximately: a batch is never split.
TEXT_BYTES = 256 * 2**10
BATCH_BYTES = 256 * 2**10
#: Time that one request may spend on events of other kinds and ranks.
READ_SECONDS = 0.5
#: Size of the part at the end of the file that `tail` searches.
TAIL_BYTES = 2 * 2**20
MAX_LINE_CHARACTERS = 10_000

#: Notices and changes of state are shown among the printed lines.
_KINDS = (b'"log"', b'"notice"', b'"state"')


def page(path: Path, rank: int | None, offset: int, tail: bool = False, before: int | None = None) -> dict[str, Any]:
    """`LogPage` of `openapi.yaml`.

    Args:
        path: an `events.jsonl`.
        rank: -1 is the job; None: all ranks.
        offset: sequence number after which the page begins, unless `tail`.
        tail: read the part that ends at `before` or at the end of the file.
        before: sequence number with which the page ends at the latest; None for the end of the file.
    """
    try:
        with open(path, "rb") as file:
            return _page(file, rank, offset, tail, before)
    except OSError:
        return {"lines": [], "offset": offset, "begin": offset, "more": False}


def _page(file: BinaryIO, rank: int | None, after: int, tail: bool, before: int | None) -> dict[str, Any]:
    size = file.seek(0, 2)
    stop = size if before is None else eventfile.offset_after(file, before)
    bounded = stop < size
    if tail:
        begin = eventfile.next_line(file, max(0, stop - TAIL_BYTES))
        after = eventfile.seq_before(file, begin)
    else:
        begin = min(eventfile.offset_after(file, after), stop)
    lines: list[list[Any]] = []
    offset, has_more, length = begin, begin < stop or not bounded, 0
    deadline = time.monotonic() + READ_SECONDS
    while has_more and length < TEXT_BYTES and time.monotonic() < deadline:
        limit = min(BATCH_BYTES, stop - offset) if bounded else BATCH_BYTES
        batch = eventfile.read(file, offset, limit, _KINDS)
        for event in map(ev.parse, batch.events):
            event_lines = _lines(event, rank)
            length += sum(len(line[3]) for line in event_lines)
            lines += event_lines
        offset, has_more = batch.offset, batch.has_more and not (bounded and batch.offset >= stop)
    last_seq = max(after, eventfile.seq_before(file, offset))
    return {"lines": lines, "offset": last_seq, "begin": after, "more": has_more and last_seq > after}


def _lines(event: ev.Event, rank: int | None) -> list[list[Any]]:
    """`StoredLogLine`s of an event; none if it is of another rank or kind."""
    if rank not in (None, event.rank):
        return []
    match event:
        case ev.Log():
            level, text = "err" if event.stream == "stderr" else "out", event.text
        case ev.Notice():
            level, text = "warning" if event.level == "warning" else "info", event.message
        case ev.State(rank=ev.JOB):
            level, text = "info", ": ".join(filter(None, (event.state, event.message)))
        case _:
            return []
    return [[event.time, event.rank, level, clean(line, MAX_LINE_CHARACTERS)] for line in text.splitlines()]
