"""A run as a file: its metrics as CSV, all of it as JSON, or a report as HTML.

The file is made in chunks, so that the server can answer other requests in between; a chunk may be empty.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ddl_magics.runs import tables
from ddl_magics.server import eventfile, report
from ddl_magics.server.run_reader import READ_SECONDS, RunReader
from ddl_magics.store import RunRecord

#: Runs with more events are not exported through the server.
MAX_BYTES = 512 * 2**20
CHUNK_CHARACTERS = 64 * 2**10

CONTENT_TYPES = {"csv": "text/csv", "json": "application/json", "html": "text/html"}


def chunks(format_: str, record: RunRecord, details: Mapping[str, Any]) -> Iterator[str]:
    """The file in chunks. `format_` is a key of `CONTENT_TYPES`, `details` is `RunDetails` of `openapi.yaml`."""
    if format_ == "csv":
        return _csv(record)
    return _json(record, details) if format_ == "json" else _html(record)


def _csv(record: RunRecord) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(tables.METRIC_COLUMNS)
    for event in eventfile.iterate(record.folder / "events.jsonl", (b'"metrics":',)):
        for created, *values in tables.metric_rows([event]):
            writer.writerow([f"{created:.6f}", *(_escape_formula(value) for value in values)])
        if text.tell() > CHUNK_CHARACTERS:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _escape_formula(value: Any) -> Any:
    """Prefix a text that a spreadsheet would evaluate as a formula with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _json(record: RunRecord, details: Mapping[str, Any]) -> Iterator[str]:
    yield '{"run":' + json.dumps(details) + ',"events":[\n'
    separator, chunk = "", ""
    for event in eventfile.iterate(record.folder / "events.jsonl"):
        chunk += separator + json.dumps(event, separators=(",", ":"))
        separator = ",\n"
        if len(chunk) > CHUNK_CHARACTERS:
            yield chunk
            chunk = ""
    yield chunk + "\n]}\n"


def _html(record: RunRecord) -> Iterator[str]:
    reader = RunReader(record)
    reader.read_more(READ_SECONDS)
    while reader.behind:
        yield ""  # lets the handler notice that the client has disconnected
        reader.read_more(READ_SECONDS)
    yield report.render(record, reader.history)
