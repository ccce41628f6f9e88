"""The messages from the kernel to the view, as a JSON Schema: the TypeScript types are made from it.

`python -m ddl_magics.dashboard.schema` prints it. Two binary buffers go with a message: float32 pairs x, y of all
`series` in their order, and float32 rows of `COLUMNS`, `rows` of them.
"""

import json
from typing import Any

from ..runtime.events import SCHEMA as EVENTS
from ..runtime.events import STATES
from .workers import COLUMNS


def _text(says: str = "") -> dict[str, Any]:
    return {"type": "string", **({"description": says} if says else {})}


def _number(says: str = "") -> dict[str, Any]:
    return {"type": "number", **({"description": says} if says else {})}


def _maybe(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _object(title: str, optional: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


_COUNT = {"type": "integer"}

_FAILURE = {**EVENTS["state"][2]["failure"], "title": "Failure", "additionalProperties": False}

_RUN = _object(
    "RunFacts",
    id=_text(),
    name=_text(),
    strategy=_text("allreduce, ps or single"),
    workers=_COUNT,
    cluster=_text("where it runs, in words"),
    waiting={"type": "boolean", "description": "the cell waits for the run: the notebook's stop button stops it"},
)

_STATE = _object(
    "RunState",
    state={"enum": list(STATES), "title": "StateName"},
    message=_text(),
    failure=_FAILURE,
    ready=_maybe(_COUNT),
    needed=_maybe(_COUNT),
    created=_maybe(_number("seconds since the epoch, as all times")),
    started=_maybe(_number("when it first was RUNNING")),
    ended=_maybe(_number()),
    fetching=_text("the file that is on its way from the cluster, in words; empty when none is"),
)

_PROGRESS = _object(
    "RunProgress",
    fit={"type": "integer", "description": "-1 before the first"},
    epoch={"type": "integer", "description": "from 0; equal to epochs at the end"},
    epochs=_COUNT,
    step={"type": "integer", "description": "steps done in the epoch"},
    steps=_maybe(_COUNT),
    fraction=_number("of the current fit, 0 to 1"),
    remaining=_maybe(_number("seconds, at the time `heard`")),
    heard=_maybe(_number("when the newest events came")),
    rate=_maybe(_number("samples/s of the job")),
    peak=_maybe(_number("the highest rate so far")),
)

_WORKER = _object(
    "WorkerFacts",
    rank=_COUNT,
    host=_text(),
    pid=_COUNT,
    device=_text(),
    state=_text(),
    message=_text(),
    cores=_COUNT,
)

_SERIES = {
    "title": "SeriesPart",
    "description": "key, index of the first point sent (what the page has from there on is replaced), points",
    "type": "array",
    "items": [_text(), _COUNT, _COUNT],
    "minItems": 3,
    "maxItems": 3,
}

_LOG = {
    "title": "LogLine",
    "description": "rank (-1: the job), level, text",
    "type": "array",
    "items": [_COUNT, {"enum": ["out", "err", "info", "warning"], "title": "LogLevel"}, _text()],
    "minItems": 3,
    "maxItems": 3,
}

MESSAGE = _object(
    "Message",
    ("run", "state", "progress", "latest", "workers"),
    n={"type": "integer", "description": "1 more than that of the message before; a page that sees a gap asks for all"},
    full={"type": "boolean", "description": "everything: what the page had is replaced"},
    now=_number("the kernel's clock"),
    run=_RUN,
    state=_STATE,
    progress=_PROGRESS,
    latest={"type": "object", "additionalProperties": {"type": "number"}, "description": "newest value of each metric"},
    workers={"type": "array", "items": _WORKER},
    series={"type": "array", "items": _SERIES},
    rows=_COUNT,
    logs={"type": "array", "items": _LOG},
    dropped={"type": "integer", "description": "log lines left out since the last message"},
)


def export() -> dict[str, Any]:
    """The schema of a message, with the names of the columns of a row."""
    columns = {"title": "Column", "enum": list(COLUMNS)}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **MESSAGE, "definitions": {"Column": columns}}


if __name__ == "__main__":
    print(json.dumps(export(), indent=2))
