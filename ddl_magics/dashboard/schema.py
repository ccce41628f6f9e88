"""JSON Schema of the messages between the kernel's live view and the page.

A `Message` travels with two binary buffers: float32 pairs (x, y) of all its `series`, in their order, and its `rows`
rows of `COLUMNS`, float32. The same messages travel over REST: `View` in `server/openapi.yaml`.
"""

from __future__ import annotations

from typing import Any

from ..runtime.events import SCHEMA as EVENTS
from ..runtime.events import STATES
from .history import DEVICES, SPREAD
from .loglines import LEVELS
from .workers import COLUMNS

Schema = dict[str, Any]


def _text(description: str = "") -> Schema:
    return {"type": "string", **({"description": description} if description else {})}


def _integer(description: str = "") -> Schema:
    return {**_text(description), "type": "integer"}


def _number(description: str = "") -> Schema:
    return {**_text(description), "type": "number"}


def _flag(description: str) -> Schema:
    return {**_text(description), "type": "boolean"}


def _nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def reference(name: str) -> Schema:
    """The definition `name`."""
    return {"$ref": f"#/definitions/{name}"}


def nullable_reference(name: str) -> Schema:
    """The definition `name`, or null."""
    return {"anyOf": [reference(name), {"type": "null"}]}


def _object(optional: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _tuple(description: str, *items: Schema) -> Schema:
    size = len(items)
    return {"description": description, "type": "array", "prefixItems": list(items), "minItems": size, "maxItems": size}


def _array(items: Schema, description: str = "") -> Schema:
    return {**_text(description), "type": "array", "items": items}


def _numbers(description: str = "") -> Schema:
    return _array(_nullable(_number()), description)


#: States of a trial of a search.
TRIAL_STATES = ("waiting", "training", "finished", "pruned", "failed")
ENDED_TRIAL_STATES = TRIAL_STATES[2:]

#: A parameter's value.
_VALUE: Schema = {"type": ["number", "string", "boolean", "null"]}

#: name -> schema; references are "#/definitions/NAME".
DEFINITIONS: dict[str, Schema] = {
    "State": {"enum": list(STATES), "description": "LOST: its kernel is gone"},
    "Failure": {
        **EVENTS["state"][2]["failure"],
        "type": "object",
        "description": "the root cause of a failed run; rank -1 is the job as a whole",
        "additionalProperties": False,
    },
    "Device": {"enum": list(DEVICES), "description": "a resource that is charted per rank"},
    "Spread": {"enum": list(SPREAD), "description": "the lines that stand for the ranks of a large job"},
    "SeriesKey": {
        "type": "string",
        "description": "names a line of a chart, see `History.series`",
        "pattern": r"^((metric|epochs):[\s\S]*|epoch|seconds|samples|rate|workers|"
        rf"({'|'.join(DEVICES)}):(\d+|{'|'.join(SPREAD)})|({'|'.join(SPREAD)}|\d+):[\s\S]*)$",
        "tsType": "`${'metric' | 'epochs'}:${string}` | 'epoch' | 'seconds' | 'samples' | 'rate' | 'workers' | "
        "`${Device}:${number | Spread}` | `${number | Spread}:${string}`",
    },
    "Column": {"enum": list(COLUMNS), "description": "a column of a row, see `Worker`"},
    "LogLevel": {"enum": list(LEVELS)},
    "SeriesUpdate": _tuple(
        "key; index of the first point sent, from which the page replaces its points; number of points",
        reference("SeriesKey"),
        _integer(),
        _integer(),
    ),
    "LogLine": _tuple("rank (-1: the job), level, text", _integer(), reference("LogLevel"), _text()),
    "RunInfo": _object(
        ("min_workers",),
        id=_text(),
        name=_text(),
        strategy=_text("value of --strategy"),
        workers=_integer("the most, where they come and go"),
        min_workers=_nullable(_integer("the least, where they come and go")),
        cluster=_text("description of the cluster"),
        waiting=_flag("the cell blocks until the run ends; only the notebook's interrupt button can stop it"),
    ),
    "NextStep": _object(text=_text("what the code is for"), code=_text()),
    "RunState": _object(
        state=reference("State"),
        message=_text(),
        failure=nullable_reference("Failure"),
        ready=_nullable(_integer("executors that are ready")),
        needed=_nullable(_integer("executors that the run needs")),
        created=_nullable(_number("seconds since the epoch, like all times")),
        started=_nullable(_number("when the run first was RUNNING")),
        ended=_nullable(_number()),
        next=nullable_reference("NextStep"),
        fetching=_text("progress of the file that is being fetched from the cluster; empty if there is none"),
        executors=_nullable(_integer("executors that the session holds, where workers come and go")),
    ),
    "RunProgress": _object(
        fit=_integer("index of the call of model.fit; -1 before the first"),
        epoch=_integer("epochs done; equal to `epochs` at the end"),
        epochs=_integer(),
        step=_integer("steps done in the current epoch"),
        steps=_nullable(_integer("steps per epoch")),
        fraction=_number("share of the current fit that is done, 0 to 1"),
        end=_nullable(_number("estimated end of the current fit")),
        last_seen=_nullable(_number("when the newest events arrived")),
        rate=_nullable(_number("samples/s of the whole job")),
        peak=_nullable(_number("highest rate so far")),
    ),
    "WorkerInfo": _object(
        rank=_integer(),
        host=_text(),
        pid=_integer(),
        device=_text(),
        state=_text(),
        message=_text(),
        cores=_integer(),
    ),
    "MonitoredThing": _object(
        name=_text(),
        output=_flag("it is an output of the model"),
        level={"enum": ["none", "drift", "severe"]},
        psi=_nullable(_number("population stability index; null for too few rows")),
        ks=_nullable(_number("Kolmogorov-Smirnov distance")),
        threshold=_nullable(_number("of the PSI, from which on it counts as a drift")),
        since=_nullable(_number("since when it is in drift, in seconds since the epoch")),
        nulls=_number("share of the rows"),
        before=_numbers("share of the rows in each bin, at training"),
        now=_numbers("the same, of the newest requests"),
    ),
    "MonitoredError": _object(
        name=_text(),
        mean=_number("of the newest labelled rows"),
        before=_nullable(_number("after training")),
        time=_numbers("when the windows begin"),
        values=_numbers("mean error of each window"),
    ),
    "MonitorView": _object(
        model=_text(),
        log=_text("where the requests are logged"),
        window=_number("seconds"),
        rows=_integer("newest rows, on which drift is judged"),
        wanted=_integer("how many they should be"),
        requests=_integer(),
        errors=_integer(),
        late=_integer("records that came too late to be counted"),
        doubles=_integer("records that came twice, and were counted once"),
        unreadable=_integer(),
        severe=_number("PSI above which a drift is severe"),
        time=_numbers("when the windows begin, in seconds since the epoch"),
        rate=_numbers("requests/s of each window"),
        p50=_numbers("latency in seconds"),
        p95=_numbers(),
        p99=_numbers(),
        things={"type": "array", "items": reference("MonitoredThing"), "description": "those that moved most first"},
        note=_text("why things have no PSI; empty where all have one"),
        hidden=_integer("further things that are watched"),
        error=nullable_reference("MonitoredError"),
        reasons={"type": "array", "items": _text(), "description": "why the model should be trained again"},
        cell=_text("the cell that trains it again"),
    ),
    "Message": _object(
        ("run", "state", "progress", "latest", "workers", "monitor"),
        n=_integer("number of the message; a page that sees a gap asks for a full one"),
        full=_flag("the message replaces all that the page has"),
        now=_number("the kernel's clock"),
        run=reference("RunInfo"),
        state=reference("RunState"),
        progress=reference("RunProgress"),
        latest={
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": "newest value of each metric",
        },
        workers={"type": "array", "items": reference("WorkerInfo")},
        monitor=reference("MonitorView"),
        series={"type": "array", "items": reference("SeriesUpdate")},
        rows=_integer("number of rows in the second buffer"),
        logs={"type": "array", "items": reference("LogLine")},
        dropped=_integer("log lines left out since the last message"),
    ),
    "KernelMessage": {
        **_object(type={"const": "delta"}, delta=reference("Message")),
        "description": "from kernel to page",
    },
    "PageMessage": {
        **_object(type={"enum": ["hello", "stop"]}),
        "description": "from page to kernel; hello: send a full message",
    },
}

#: The same for the live view of a search, whose messages are JSON alone.
SEARCH_DEFINITIONS: dict[str, Schema] = {
    "TrialState": {"enum": list(TRIAL_STATES)},
    "SearchAxis": _object(
        name=_text("of the parameter"),
        low=_number(),
        high=_number(),
        log=_flag("the logarithm is sampled"),
        choices=_nullable({"type": "array", "items": _VALUE, "description": "null for a range of numbers"}),
    ),
    "SearchInfo": _object(
        id=_text(),
        name=_text(),
        metric=_text("the objective, or the first of several"),
        direction={"enum": ["max", "min"]},
        others={"type": "array", "items": _text(), "description": "further objectives"},
        planned=_integer("number of trials"),
        axes={"type": "array", "items": reference("SearchAxis"), "description": "the parameters that are sampled"},
        waiting=_flag("the cell blocks until the search ends; only the notebook's interrupt button can stop it"),
    ),
    "SearchState": _object(
        state=reference("State"),
        message=_text(),
        about=_text("how it samples, prunes and runs"),
        at=_number("when the search was so, in seconds since the epoch"),
        seconds=_number("since its begin, or that it took"),
        left=_nullable(_number("estimated seconds until its end")),
        front=_array(
            _integer(), "number of the best finished trial; of those that no other one beats in several objectives"
        ),
    ),
    "TrialView": _object(
        number=_integer(),
        state=reference("TrialState"),
        value=_nullable(_number("of the objective after the last epoch")),
        others={"type": "array", "items": _nullable(_number()), "description": "further objectives, at its end"},
        params={"type": "array", "items": _VALUE, "description": "in the order of the axes"},
        epochs=_integer("with a value of the objective"),
        begun=_number("in seconds since the epoch"),
        seconds=_nullable(_number("that it took; null while it runs")),
        reason=_text("why it was pruned or failed"),
        run=_text("the id of its run"),
        tries=_integer(),
        curve=_array(_tuple("", _integer(), _nullable(_number())), "epochs, from 1, and the objective after them"),
    ),
    "SearchMessage": _object(
        ("info",),
        n=_integer("number of the message; a page that sees a gap asks for a full one"),
        full=_flag("the message replaces all that the page has"),
        now=_number("the kernel's clock"),
        info=reference("SearchInfo"),
        state=reference("SearchState"),
        trials={"type": "array", "items": reference("TrialView"), "description": "those that have changed"},
    ),
    "SearchKernelMessage": _object(type={"const": "search"}, search=reference("SearchMessage")),
    "SearchPageMessage": {
        "description": "hello: send a full message; stop: end the search",
        "oneOf": [
            _object(type={"enum": ["hello", "stop"]}),
            _object(type={"const": "stop_trial"}, trial=_integer("its number")),
        ],
    },
}


def message_schema() -> Schema:
    """The schema of a `Message`, as a document of its own."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **reference("Message"),
        "definitions": DEFINITIONS,
    }
