"""What ranks printed, in parts: a place in the file of events is where the next part begins."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ddl_magics.dashboard.loglines import clean
from ddl_magics.runtime import events as ev
from ddl_magics.server import eventfile

#: Of text in one reply, about: a batch is not divided.
TEXT_BYTES = 256 * 2**10
BATCH_BYTES = 256 * 2**10
#: How long one request looks through events of other kinds and ranks.
READ_SECONDS = 0.5
#: With `tail`, what is looked through at the end of the file.
TAIL_BYTES = 2 * 2**20
LINE_CHARACTERS = 10_000

#: Notices, and what became of the job, are shown among what was printed.
_KINDS = (b'"log"', b'"notice"', b'"state"')


def lines(path: Path, rank: int | None, offset: int, tail: bool = False, before: int = sys.maxsize) -> dict[str, Any]:
    """Lines of one rank (-1: of the job), or of all, from the byte `offset` on: `Logs` in `openapi.yaml`."""
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    end = min(before, size)
    bounded = before < size
    begin = eventfile.next_line(path, max(0, end - TAIL_BYTES)) if tail else min(offset, end)
    found: list[list[Any]] = []
    place, more, text, deadline = begin, begin < end or not bounded, 0, time.monotonic() + READ_SECONDS
    while more and text < TEXT_BYTES and time.monotonic() < deadline:
        limit = min(BATCH_BYTES, end - place) if bounded else BATCH_BYTES
        batch = eventfile.read(path, place, limit, _KINDS)
        for event in batch.events:
            fresh = _lines(event, rank)
            text += sum(len(line[3]) for line in fresh)
            found += fresh
        place, more = batch.place, batch.more and not (bounded and batch.place >= end)
    return {"lines": found, "offset": place, "begin": begin, "more": more}


def _lines(event: eventfile.Event, rank: int | None) -> list[list[Any]]:
    if rank not in (None, event["rank"]):
        return []
    if event["kind"] == "log":
        level, text = "err" if event.get("stream") == "stderr" else "out", str(event.get("text", ""))
    elif event["kind"] == "notice":
        level, text = ("warning" if event.get("level") == "warning" else "info"), str(event.get("message", ""))
    elif event["kind"] == "state" and event["rank"] == ev.JOB:
        level, text = "info", ": ".join(filter(None, (str(event.get("state")), str(event.get("message") or ""))))
    else:
        return []
    return [[event["time"], event["rank"], level, clean(line, LINE_CHARACTERS)] for line in text.splitlines()]
