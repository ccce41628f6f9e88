"""The events of a run: the one schema of what ranks, supervisors and the driver report.

An event is a JSON object. Ranks and supervisors make it, the driver numbers it, the notebook stores it, and every view
is drawn from events alone. A reader ignores kinds and fields that it does not know. Of a long run, driver and notebook
merge old events (`bounded_log.py`).

`SCHEMA` describes each kind. `json_schema()` exports it.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, Final, Mapping, NamedTuple, get_args

from .rank_end import RunFailureKind

Schema = Dict[str, Any]  # a JSON Schema
Event = Dict[str, Any]  # a JSON object of one of the kinds in SCHEMA

VERSION = 1

#: The rank of events of the job as a whole.
JOB = -1

#: Beyond these bounds a number is damaged: of a rank, of anything that is counted, of any whole number, and a time in
#: seconds since the epoch (the year 2255).
MAX_RANK, MAX_COUNT, MAX_INTEGER, MAX_TIME = 1_000_000, 2**53, 10**300, 9e9

QUEUED, PREFLIGHT, SUBMITTED, WAITING, RUNNING = "QUEUED", "PREFLIGHT", "SUBMITTED", "WAITING", "RUNNING"
STOPPING, LOST = "STOPPING", "LOST"
STOPPED: Final = "STOPPED"
FINISHED: Final = "FINISHED"
FAILED: Final = "FAILED"
STATES = (QUEUED, PREFLIGHT, SUBMITTED, WAITING, RUNNING, STOPPING, STOPPED, FINISHED, FAILED, LOST)
TERMINAL = frozenset((STOPPED, FINISHED, FAILED, LOST))

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_OBJECT: Schema = {"type": "object", "additionalProperties": {}}
_SECONDS: Schema = {"type": "number", "minimum": 0, "description": "seconds"}
_METRICS: Schema = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}


def _optional(schema: Schema) -> Schema:
    return dict(schema, type=[schema["type"], "null"])


_GPU: Schema = {
    "type": "object",
    "properties": {
        "index": _COUNT,
        "name": _TEXT,
        "percent": _optional(_NUMBER),
        "memory": _optional(_COUNT),
        "memory_total": _optional(_COUNT),
    },
    "required": ["index", "name"],
}

_COUNTS: Schema = {"type": "array", "items": _COUNT}
_INPUTS: Schema = {
    "type": "object",
    "description": "how columns become a model's inputs",
    "properties": {
        "columns": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": _TEXT, "dtype": _TEXT, "depth": _COUNT, "vector": {"type": "boolean"}},
                "required": ["name", "dtype", "depth", "vector"],
            },
        },
        "tensors": {"type": "array", "items": _COUNTS, "description": "of each, the indices of its columns"},
        "uses": {"type": "array", "items": _TEXT, "description": "of each, a dtype, string, or floatx for Keras'"},
        "shapes": {"type": "array", "items": _COUNTS, "description": "of a row of each"},
        "features": {
            "type": ["integer", "object"],
            "minimum": 0,
            "additionalProperties": _COUNT,
            "description": "a tensor's index, or the indices of several by name",
        },
    },
    "required": ["columns", "tensors", "uses", "shapes", "features"],
}

_FAILURE: Schema = {
    "type": ["object", "null"],
    "description": "why the run failed: its root cause",
    "properties": {
        "rank": {"type": "integer"},
        "host": _TEXT,
        "kind": {"enum": list(get_args(RunFailureKind))},
        "message": _TEXT,
        "traceback": _TEXT,
    },
    "required": ["rank", "host", "kind", "message", "traceback"],
}


_SPARK: Schema = {
    "type": "object",
    "properties": {
        "version": _TEXT,
        "master": _TEXT,
        "settings": {"type": "object", "additionalProperties": _TEXT, "description": "without secrets"},
    },
    "required": ["version", "master", "settings"],
}


class EventKind(NamedTuple):
    """A kind of events. required, optional: the schemas of its fields, by name."""

    description: str
    required: dict[str, Schema]
    optional: dict[str, Schema]


#: kind -> its schema. Sizes are in bytes, times in seconds.
SCHEMA: dict[str, EventKind] = {
    "state": EventKind(
        "the run changed state",
        {"state": {"enum": list(STATES)}, "message": _TEXT},
        {"ready": _COUNT, "needed": _COUNT, "failure": _FAILURE},
    ),
    "environment": EventKind(
        "the environment of the driver, or of a rank. The `packages` of a rank are only the differences from the "
        "process `like` (-1: the driver); null: not installed. `sent` and `data` are fingerprints of the cell's "
        "variables and of the DataFrame",
        {"packages": {"type": "object", "additionalProperties": {"type": ["string", "null"]}}},
        {
            "like": {"type": "integer", "minimum": JOB},
            "python": _TEXT,
            "platform": _TEXT,
            "host": _TEXT,
            "spark": _SPARK,
            "sent": {"type": "object", "additionalProperties": _OBJECT},
            "data": _OBJECT,
        },
    ),
    "data": EventKind(
        "the rows of --data have been divided among the ranks; with `inputs`, other rows become the same inputs of the "
        "model",
        {"name": _TEXT, "rows": _COUNT, "validation_rows": _COUNT, "inputs": _INPUTS},
        {"content": dict(_TEXT, description="a hash of the rows, whatever their order")},
    ),
    "reading": EventKind(
        "rank 0 has read so many of its rows of the files of --data; the driver makes a state of the run of it",
        {"rows": _COUNT, "of": _COUNT, "row_bytes": _COUNT, "seconds": _SECONDS},
        {},
    ),
    "worker": EventKind(
        "a rank started, or its state changed",
        {"host": _TEXT, "pid": _COUNT, "device": _TEXT, "state": _TEXT},
        {
            "cores": _COUNT,
            "message": _TEXT,
            "executor": dict(_TEXT, description="id of its Spark executor, if executors have processes of their own"),
            "versions": {
                "type": "object",
                "additionalProperties": _TEXT,
                "description": "of Python, TensorFlow, Keras and Spark, once the rank has loaded them",
            },
        },
    ),
    "fit": EventKind(
        "a call of model.fit began; `steps` is per epoch, and null if it is not known; `batch_size` is that of the "
        "global batch with all-reduce, and of the worker's batch with ps; or, with no epochs, a training loop of the "
        "cell's own began",
        {"fit": _COUNT, "model": _TEXT, "epochs": _COUNT, "steps": _optional(_COUNT)},
        {
            "batch_size": _optional(_COUNT),
            "parameters": _optional(_COUNT),
            "models": dict(_COUNT, description="that the ranks train: 1, or with an ensemble one each"),
        },
    ),
    "steps": EventKind(
        "a bucket of consecutive steps of one rank; the counts of a rank's buckets add up to its steps. `metrics` are "
        "Keras' running values at the end of the bucket, of the rank's own rows. `compute` and `wait` are sums over "
        "its steps. `wait` contains `copy` (to move and add data on the host) and `wire` (on the network); the rest is "
        "waiting for other ranks",
        {
            "fit": _COUNT,
            "epoch": _COUNT,
            "step": dict(_COUNT, description="first step of the bucket, from 0 in each epoch"),
            "count": _COUNT,
            "rows": _COUNT,
            "seconds": _SECONDS,
            "compute": _SECONDS,
            "wait": _SECONDS,
            "metrics": _METRICS,
        },
        {
            "copy": _SECONDS,
            "wire": _SECONDS,
            "data": dict(_SECONDS, description="seconds of waiting for the next batches of tf.data; in no other field"),
            "hidden": dict(_SECONDS, description="seconds for which gradients were moved while the steps computed"),
            "earlier": dict(_COUNT, description="so many of its steps, the first, are of earlier epochs or fits"),
        },
    ),
    "epoch": EventKind(
        "an epoch of the whole job ended; `metrics` are those of Keras' History",
        {"fit": _COUNT, "epoch": _COUNT, "metrics": _METRICS, "seconds": _SECONDS},
        {},
    ),
    "member": EventKind(
        "ensemble: an epoch of this rank's own model ended; rank 0 reports its epochs as `epoch`",
        {"fit": _COUNT, "epoch": _COUNT, "metrics": _METRICS},
        {},
    ),
    "fit_end": EventKind("a call of model.fit returned", {"fit": _COUNT, "stopped": {"type": "boolean"}}, {}),
    "sample": EventKind(
        "resource usage of a rank's process; `cpu` is in percent of one core, `gpus` is null without a GPU",
        {"cpu": _NUMBER, "memory": _COUNT, "gpus": {"type": ["array", "null"], "items": _GPU}},
        {"count": dict(_COUNT, description="the number of samples that it is the mean of; 1 if it is missing")},
    ),
    "log": EventKind("whole lines that a rank printed", {"stream": {"enum": ["stdout", "stderr"]}, "text": _TEXT}, {}),
    "values": EventKind("what the cell passed to ddl.log()", {"metrics": _METRICS, "step": _optional(_COUNT)}, {}),
    "commits": EventKind(
        "parameter server: this rank's commits since its last such event, `seconds` ago, and their staleness: the "
        "mean, the maximum, and in `histogram` the number of commits with 0, 1, 2 to 3, 4 to 7, 8 to 15, ...",
        {"commits": _COUNT, "staleness": {"type": "number"}, "staleness_max": _COUNT},
        {"seconds": _SECONDS, "histogram": _COUNTS},
    ),
    "artifact": EventKind(
        "a file that the driver holds for the notebook, or has written to `uri` because of --out",
        {"name": _TEXT, "size": _COUNT, "sha256": _TEXT},
        {"uri": _TEXT},
    ),
    "file": EventKind(
        "a file that the cell has written on rank 0, and that the driver holds for the notebook; `name` is relative to "
        "the notebook's folder, with slashes",
        {"name": _TEXT, "size": _COUNT, "sha256": _TEXT},
        {},
    ),
    "picture": EventKind(
        "a picture that the cell has shown: `data` is an image's file in base64, or HTML, which no page may trust",
        {"mime": {"enum": ["image/png", "image/jpeg", "text/html"]}, "data": _TEXT},
        {},
    ),
    "placed": EventKind(
        "the notebook has written a file of the cell to `path`, on its machine",
        {"name": _TEXT, "path": _TEXT},
        {},
    ),
    "result": EventKind(
        "the value of the cell's last expression on rank 0: `value` for json and repr, `artifact` otherwise",
        {"encoding": {"enum": ["none", "json", "npy", "keras", "repr"]}},
        {"value": {}, "artifact": _TEXT},
    ),
    "reference": EventKind(
        "a rank's sketch of its rows of --data and, from rank 0, of what the model makes of some; the driver merges "
        "them into the run's reference.json, and stores none",
        {
            "rows": _COUNT,
            "inputs": {"type": "array", "items": _OBJECT},
            "outputs": {"type": "array", "items": _OBJECT},
            "sketches": {"type": "array", "items": _OBJECT},
            "output_sketches": {"type": "array", "items": _OBJECT},
        },
        {},
    ),
    "watch": EventKind(
        "what a monitor has counted so far: `things` are the model's inputs and outputs that have moved most, over the "
        "newest `rows` rows; `lines` are over time, `totals` of all requests; `advice` says why to train again",
        {
            "model": _TEXT,
            "log": _TEXT,
            "window": _SECONDS,
            "rows": _COUNT,
            "wanted": _COUNT,
            "totals": {"type": "object", "additionalProperties": _COUNT},
            "lines": _OBJECT,
            "things": {"type": "array", "items": _OBJECT},
            "hidden": _COUNT,
            "bounds": {"type": "object", "additionalProperties": _NUMBER},
            "error": _optional(_OBJECT),
            "advice": _optional(_OBJECT),
        },
        {},
    ),
    "transfer": EventKind(
        "how many bytes of a file have arrived from the driver; made by the notebook for its views, never stored",
        {"name": _TEXT, "done": _COUNT, "size": _COUNT},
        {},
    ),
    "notice": EventKind("a hint for the user", {"level": {"enum": ["info", "warning"]}, "message": _TEXT}, {}),
}


#: The kinds of which old events of a long run are merged, as `merging.py` says.
MERGED = ("steps", "sample", "commits", "values")


def is_sound(event: Any) -> bool:
    """Whether a JSON value is an event whose fields have the types and bounds that its kind has in SCHEMA.

    Unknown kinds, fields and values of enumerations are those of another version, and pass. `attempt`, `seq` and
    `first` may be missing: an event gets them later.
    """
    if type(event) is not dict or type(event.get("kind")) is not str:
        return False
    rank: Any = event.get("rank")
    moment: Any = event.get("time")
    if type(rank) is not int or not JOB <= rank <= MAX_RANK:
        return False
    if type(moment) not in (int, float) or not 0 <= moment < MAX_TIME:
        return False
    if not (_is_number(event, "attempt", 0) and _is_number(event, "seq", 1) and _is_number(event, "first", 1)):
        return False
    fits = _FIELDS.get(event["kind"])
    return fits is None or fits(event)


def encodable(value: Dict[str, Any]) -> Dict[str, Any]:
    """A JSON object with "?" in place of surrogates: they are in no valid UTF-8 text, and no page can be sent them."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return dict(json.loads(text.encode(errors="replace")))
    return value


def _is_number(event: Event, name: str, least: int) -> bool:
    return name not in event or (type(event[name]) is int and least <= event[name] <= MAX_COUNT)


_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


class _Check(NamedTuple):
    """What a schema says of a value. types: empty for any. least: None where NaN and infinities are numbers, too."""

    types: frozenset[type]
    least: float | None
    parts: Callable[[Any], bool] | None


def _check(schema: Schema) -> _Check:
    if "enum" in schema:
        return _Check(frozenset([str]), None, None)
    named = schema.get("type", ())
    types = {_TYPES[name] for name in ([named] if isinstance(named, str) else named)}
    parts = _object_check(schema) if dict in types else _list_check(schema) if list in types else None
    if int in types:
        return _Check(frozenset(types), schema.get("minimum", -MAX_COUNT), parts)
    return _Check(frozenset(types | {int} if float in types else types), schema.get("minimum"), parts)


def _fits(value: Any, check: _Check) -> bool:
    kind = type(value)
    if kind not in check.types:
        return not check.types
    if kind is int or kind is float:
        if check.least is not None:
            return bool(check.least <= value <= MAX_COUNT)
        return kind is float or -MAX_INTEGER < value < MAX_INTEGER
    return check.parts is None or value is None or check.parts(value)


def _list_check(schema: Schema) -> Callable[[Any], bool]:
    item = _check(schema["items"])
    return lambda values: all(_fits(value, item) for value in values)


def _object_check(schema: Schema) -> Callable[[Any], bool]:
    required = schema.get("required", ())
    parts = [(name, name in required, _check(part)) for name, part in schema.get("properties", {}).items()]
    others = _check(schema["additionalProperties"]) if "additionalProperties" in schema else None

    def fits(value: dict[str, Any]) -> bool:
        if others is not None:
            return all(_fits(part, others) for part in value.values())
        for name, needed, check in parts:
            if name in value:
                if not _fits(value[name], check):
                    return False
            elif needed:
                return False
        return True

    return fits


#: Kind -> the check of its fields.
_FIELDS = {
    name: _object_check({"required": list(kind.required), "properties": {**kind.required, **kind.optional}})
    for name, kind in SCHEMA.items()
}


def make(kind: str, rank: int, **fields: Any) -> Event:
    """An event of `kind` from `rank` (or `JOB`), at the present time. The driver adds run, attempt and seq."""
    return dict(fields, v=VERSION, kind=kind, rank=rank, time=time.time())


def steps_done(event: Mapping[str, Any]) -> int:
    """The steps of its epoch that are done at the end of a bucket."""
    return int(event["step"] + event["count"] - event.get("earlier", 0))


def json_schema() -> Schema:
    """The JSON Schema of an event, as the driver hands it out."""
    envelope: dict[str, Schema] = {
        "v": {"const": VERSION},
        "run": _TEXT,
        "attempt": _COUNT,
        "rank": {"type": "integer", "minimum": JOB},
        "seq": {
            "type": "integer",
            "minimum": 1,
            "description": "1, 2, 3, ... within the run; there are gaps where old events of a long run were merged",
        },
        "time": {"type": "number", "description": "seconds since the epoch, by the clock of the process that made it"},
    }
    merged: dict[str, Schema] = {
        "first": {
            "type": "integer",
            "minimum": 1,
            "description": "of a merged event: the `seq` of the first event that it stands for",
        },
    }
    kinds = [
        {
            "title": name,
            "description": kind.description,
            "type": "object",
            "properties": {
                **envelope,
                **(merged if name in MERGED else {}),
                "kind": {"const": name},
                **kind.required,
                **kind.optional,
            },
            "required": sorted(envelope) + ["kind"] + sorted(kind.required),
        }
        for name, kind in SCHEMA.items()
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ddl_magics event",
        "oneOf": kinds,
    }
