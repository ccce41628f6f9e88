"""A run as a file to keep: its values as CSV, all of it as JSON, or a report as HTML.

Made in pieces, so that other requests come between; a piece may be empty.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ddl_magics import tables
from ddl_magics.server import eventfile, report
from ddl_magics.server.watching import READ_SECONDS, Reading
from ddl_magics.store import RunRecord

#: A longer file of events is not exported through the server.
MOST_BYTES = 512 * 2**20
PIECE_CHARACTERS = 64 * 2**10

TYPES = {"csv": "text/csv", "json": "application/json", "html": "text/html"}


def pieces(form: str, record: RunRecord, detail: Mapping[str, Any]) -> Iterator[str]:
    """The file of the run. `form` is a key of `TYPES`, `detail` what the server says of the run."""
    if form == "csv":
        return _csv(record)
    return _json(record, detail) if form == "json" else _html(record)


def _csv(record: RunRecord) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(tables.METRIC_COLUMNS)
    for event in eventfile.every(record.folder / "events.jsonl", (b'"metrics":',)):
        try:
            found = list(tables.metric_rows([event]))
        except (KeyError, TypeError, AttributeError):
            continue  # it is damaged, and the others are not
        for made, *values in found:
            writer.writerow([f"{made:.6f}", *(_plain(value) for value in values)])
        if text.tell() > PIECE_CHARACTERS:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _plain(value: Any) -> Any:
    """What a spreadsheet would take for a formula is text to it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _json(record: RunRecord, detail: Mapping[str, Any]) -> Iterator[str]:
    yield '{"run":' + json.dumps(detail) + ',"events":[\n'
    before, piece = "", ""
    for event in eventfile.every(record.folder / "events.jsonl"):
        piece += before + json.dumps(event, separators=(",", ":"))
        before = ",\n"
        if len(piece) > PIECE_CHARACTERS:
            yield piece
            piece = ""
    yield piece + "\n]}\n"


def _html(record: RunRecord) -> Iterator[str]:
    reading = Reading(record)
    reading.read_on(READ_SECONDS)
    while reading.behind:
        yield ""  # whoever writes the pieces may have left
        reading.read_on(READ_SECONDS)
    yield report.page(record, reading.history)
