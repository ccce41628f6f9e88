"""The events of a run: the one schema of what ranks, supervisors and the driver report.

An event is a JSON object. Ranks and supervisors make it, the driver numbers it, the notebook stores it, and every view
is drawn from events alone. Of a long run, driver and notebook merge old events (`bounded_log.py`).

Each kind is a subclass of `Event`, and `SCHEMA` and `json_schema()` are made from these classes. A `RawEvent`, the JSON
object, is what travels and what is stored. A reader calls `parse`, and reads attributes.
"""

from __future__ import annotations

import json
import time
from typing import Any, Dict, Final, Iterable, Iterator, List, NamedTuple, Optional, TypeVar, get_args

from .rank_end import RunFailureKind
from .schema_check import MAX_COUNT, Schema, object_check

RawEvent = Dict[str, Any]  # an event as a JSON object
Metrics = Dict[str, Optional[float]]  # name -> value; None stands for NaN and infinities

VERSION = 1

#: The rank of events of the job as a whole.
JOB = -1

#: Beyond these bounds a rank is damaged, and a time in seconds since the epoch (the year 2255).
MAX_RANK, MAX_TIME = 1_000_000, 9e9

QUEUED, PREFLIGHT, SUBMITTED, WAITING, RUNNING = "QUEUED", "PREFLIGHT", "SUBMITTED", "WAITING", "RUNNING"
STOPPING, LOST = "STOPPING", "LOST"
STOPPED: Final = "STOPPED"
FINISHED: Final = "FINISHED"
FAILED: Final = "FAILED"
STATES = (QUEUED, PREFLIGHT, SUBMITTED, WAITING, RUNNING, STOPPING, STOPPED, FINISHED, FAILED, LOST)
TERMINAL = frozenset((STOPPED, FINISHED, FAILED, LOST))

#: The states of a worker before the cell can run there.
WORKER_STARTING, WORKER_LOADING = LOADING_STATES = ("starting", "loading TensorFlow")

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_OBJECT: Schema = {"type": "object", "additionalProperties": {}}
_SECONDS: Schema = {"type": "number", "minimum": 0, "description": "seconds"}
_METRICS: Schema = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}


def _nullable(schema: Schema) -> Schema:
    return dict(schema, type=[schema["type"], "null"])


_GPU: Schema = {
    "type": "object",
    "properties": {
        "index": _COUNT,
        "name": _TEXT,
        "percent": _nullable(_NUMBER),
        "memory": _nullable(_COUNT),
        "memory_total": _nullable(_COUNT),
        "memory_percent": _nullable(_NUMBER),
        "power": _nullable(_NUMBER),
        "power_limit": _nullable(_NUMBER),
        "slowed_by": {"type": ["string", "null"], "enum": ["heat", "power", None]},
    },
    "required": ["index", "name"],
}

_COUNTS: Schema = {"type": "array", "items": _COUNT}
_OBJECTS: Schema = {"type": "array", "items": _OBJECT}
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
        "uses": {
            "type": "array",
            "items": _TEXT,
            "description": "of each, a dtype, string, or floatx for Keras'; ragged before that of a ragged tensor",
        },
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
    """The schemas of the fields of a kind of events, by name."""

    description: str
    required: dict[str, Schema]
    optional: dict[str, Schema]


class _Field(NamedTuple):
    """A field of a kind. default: its value in Python where an event does not have it; None if it is required."""

    schema: Schema
    is_required: bool
    default: Any


def _required(schema: Schema, description: str = "") -> Any:
    return _Field(_described(schema, description), True, None)


def _optional(schema: Schema, description: str = "", default: Any = None) -> Any:
    return _Field(_described(schema, description), False, default)


def _described(schema: Schema, description: str) -> Schema:
    return dict(schema, description=description) if description else schema


#: kind -> its schema, made from the subclasses of `Event`. Sizes are in bytes, times in seconds.
SCHEMA: dict[str, EventKind] = {}

_CLASSES: dict[str, type[Event]] = {}


class Event:
    """A parsed event: its fields are attributes, to be read only. `parse` makes it.

    A subclass is a kind of events: its docstring is the description and its attributes are the fields of the JSON
    Schema. An event of a kind that this version does not know is an `Event`; fields that it does not know are ignored.
    The subclasses have properties but no methods, because a field of a later version would hide a method of its name.

    Attributes:
        seq: number within the run, from 1; 0 if it has none yet.
        first: of a merged event, the `seq` of the first event that it stands for; otherwise 0.
        attempt: 0 for an event that the notebook made; None if it has none yet.
        time: seconds since the epoch.
    """

    kind: str
    rank: int
    time: float
    run: str = ""
    attempt: int | None = None
    seq: int = 0
    first: int = 0

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        fields = {name: value for name, value in vars(cls).items() if isinstance(value, _Field)}
        for name, field in fields.items():
            if field.is_required:
                delattr(cls, name)
            else:
                setattr(cls, name, field.default)
        text = " ".join((cls.__doc__ or "").split())
        SCHEMA[kind] = EventKind(
            text[:1].lower() + (text[1:] if text.endswith("...") else text[1:].rstrip(".")),
            {name: field.schema for name, field in fields.items() if field.is_required},
            {name: field.schema for name, field in fields.items() if not field.is_required},
        )
        _CLASSES[kind] = cls

    @property
    def raw(self) -> RawEvent:
        """The JSON object."""
        return self.__dict__

    @property
    def first_seq(self) -> int:
        """The number of the first event that this one stands for; without merging, its own."""
        return self.first or self.seq


_new = object.__new__


def parse(raw: RawEvent) -> Event:
    """The event in a JSON object for which `is_sound` is true.

    Nothing is copied: the attributes are the JSON object itself, because a view reads all events of a long run.
    """
    event = _new(_CLASSES.get(raw["kind"], Event))
    event.__dict__ = raw
    return event


EventT = TypeVar("EventT", bound=Event)


def parse_as(kind: type[EventT], raw: RawEvent) -> EventT:
    """As `parse`, of an event whose kind is known."""
    event = _new(kind)
    event.__dict__ = raw
    return event


def select(kind: type[EventT], raw_events: Iterable[RawEvent]) -> Iterator[EventT]:
    """The events of one kind, such as `Epoch`, in their order."""
    name = kind.kind
    return (parse_as(kind, raw) for raw in raw_events if raw["kind"] == name)


class State(Event, kind="state"):
    """The run changed state."""

    state: str = _required({"enum": list(STATES)})
    message: str = _required(_TEXT)
    ready: int | None = _optional(_COUNT)
    needed: int | None = _optional(_COUNT)
    failure: Dict[str, Any] | None = _optional(_FAILURE)


class Environment(Event, kind="environment"):
    """The environment of the driver, or of a rank. The `packages` of a rank are only the differences from the process
    `like` (-1: the driver); null: not installed. `sent` and `data` are fingerprints of the cell's variables and of the
    DataFrame. `session` names the settings of the session that the ranks take over, with commas between them."""

    packages: Dict[str, str | None] = _required(
        {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
    )
    like: int | None = _optional({"type": "integer", "minimum": JOB})
    python: str | None = _optional(_TEXT)
    platform: str | None = _optional(_TEXT)
    host: str | None = _optional(_TEXT)
    spark: Dict[str, Any] | None = _optional(_SPARK)
    sent: Dict[str, Dict[str, Any]] | None = _optional({"type": "object", "additionalProperties": _OBJECT})
    data: Dict[str, Any] | None = _optional(_OBJECT)
    session: str | None = _optional(_TEXT)


class Data(Event, kind="data"):
    """The rows of --data have been divided among the ranks; with `inputs`, other rows become the same inputs of the
    model."""

    name: str = _required(_TEXT)
    rows: int = _required(_COUNT)
    validation_rows: int = _required(_COUNT)
    inputs: Dict[str, Any] = _required(_INPUTS)
    content: str | None = _optional(_TEXT, "a hash of the rows, whatever their order")


class Reading(Event, kind="reading"):
    """Rank 0 has read so many of its rows of the files of --data; the driver makes a state of the run of it."""

    rows: int = _required(_COUNT)
    of: int = _required(_COUNT)
    row_bytes: int = _required(_COUNT)
    seconds: float = _required(_SECONDS)


class Worker(Event, kind="worker"):
    """A rank started, or its state changed."""

    host: str = _required(_TEXT)
    pid: int = _required(_COUNT)
    device: str = _required(_TEXT)
    state: str = _required(_TEXT)
    cores: int | None = _optional(_COUNT)
    message: str | None = _optional(_TEXT)
    executor: str | None = _optional(_TEXT, "id of its Spark executor, if executors have processes of their own")
    versions: Dict[str, str] | None = _optional(
        {"type": "object", "additionalProperties": _TEXT},
        "of Python, TensorFlow, Keras and Spark, once the rank has loaded them",
    )


class Group(Event, kind="group"):
    """The ranks that train together from now on, where ranks come and go."""

    members: List[int] = _required(_COUNTS)


class Held(Event, kind="held"):
    """The Spark session holds so many executors, where ranks come and go. It comes when their number has changed."""

    executors: int = _required(_COUNT)


class Fit(Event, kind="fit"):
    """A call of model.fit began; `steps` is per epoch, and null if it is not known; `batch_size` is that of the global
    batch with all-reduce, and of the worker's batch with ps; or, with no epochs, a training loop of the cell's own
    began."""

    fit: int = _required(_COUNT)
    model: str = _required(_TEXT)
    epochs: int = _required(_COUNT)
    steps: int | None = _required(_nullable(_COUNT))
    batch_size: int | None = _optional(_nullable(_COUNT))
    parameters: int | None = _optional(_nullable(_COUNT))
    models: int = _optional(_COUNT, "that the ranks train: 1, or with an ensemble one each", default=1)
    regroups: bool = _optional(
        {"type": "boolean"}, "whether the others train on without a rank that is lost", default=False
    )


class Steps(Event, kind="steps"):
    """A bucket of consecutive steps of one rank; the counts of a rank's buckets add up to its steps. `metrics` are
    Keras' running values at the end of the bucket, of the rank's own rows. `compute` and `wait` are sums over its
    steps. `wait` contains `copy` (to move and add data on the host) and `wire` (on the network); the rest is waiting
    for other ranks."""

    fit: int = _required(_COUNT)
    epoch: int = _required(_COUNT)
    step: int = _required(_COUNT, "first step of the bucket, from 0 in each epoch")
    count: int = _required(_COUNT)
    rows: int = _required(_COUNT)
    seconds: float = _required(_SECONDS)
    compute: float = _required(_SECONDS)
    wait: float = _required(_SECONDS)
    metrics: Metrics = _required(_METRICS)
    copy: float | None = _optional(_SECONDS)
    wire: float | None = _optional(_SECONDS)
    data: float | None = _optional(_SECONDS, "seconds of waiting for the next batches of tf.data; in no other field")
    hidden: float | None = _optional(_SECONDS, "seconds for which gradients were moved while the steps computed")
    earlier: int = _optional(_COUNT, "so many of its steps, the first, are of earlier epochs or fits", default=0)

    @property
    def steps_done(self) -> int:
        """The steps of its epoch that are done at the end of the bucket."""
        return self.step + self.count - self.earlier


class Epoch(Event, kind="epoch"):
    """An epoch of the whole job ended; `metrics` are those of Keras' History."""

    fit: int = _required(_COUNT)
    epoch: int = _required(_COUNT)
    metrics: Metrics = _required(_METRICS)
    seconds: float = _required(_SECONDS)


class Member(Event, kind="member"):
    """Ensemble: an epoch of this rank's own model ended; rank 0 reports its epochs as `epoch`."""

    fit: int = _required(_COUNT)
    epoch: int = _required(_COUNT)
    metrics: Metrics = _required(_METRICS)


class FitEnd(Event, kind="fit_end"):
    """A call of model.fit returned."""

    fit: int = _required(_COUNT)
    stopped: bool = _required({"type": "boolean"})


class Sample(Event, kind="sample"):
    """Resource usage of a rank's process; `cpu` is in percent of one core, `gpus` is null without a GPU.

    Of each GPU: index, name; percent of the time in which a kernel ran, and in which memory was used (memory_percent);
    power and power_limit, in watts; slowed_by: "heat" or "power", if its host slows it down. What NVML does not tell is
    null.
    """

    cpu: float = _required(_NUMBER)
    memory: int = _required(_COUNT)
    gpus: List[Dict[str, Any]] | None = _required({"type": ["array", "null"], "items": _GPU})
    count: int = _optional(_COUNT, "the number of samples that it is the mean of; 1 if it is missing", default=1)


class Log(Event, kind="log"):
    """Whole lines that a rank printed."""

    stream: str = _required({"enum": ["stdout", "stderr"]})
    text: str = _required(_TEXT)


class Values(Event, kind="values"):
    """What the cell passed to ddl.log()."""

    metrics: Metrics = _required(_METRICS)
    step: int | None = _required(_nullable(_COUNT))


class Commits(Event, kind="commits"):
    """Parameter server: this rank's commits since its last such event, `seconds` ago, and their staleness: the mean,
    the maximum, and in `histogram` the number of commits with 0, 1, 2 to 3, 4 to 7, 8 to 15, ..."""

    commits: int = _required(_COUNT)
    staleness: float = _required(_NUMBER)
    staleness_max: int = _required(_COUNT)
    seconds: float | None = _optional(_SECONDS)
    histogram: List[int] | None = _optional(_COUNTS)


class Artifact(Event, kind="artifact"):
    """A file that the driver holds for the notebook, or has written to `uri` because of --out."""

    name: str = _required(_TEXT)
    size: int = _required(_COUNT)
    sha256: str = _required(_TEXT)
    uri: str | None = _optional(_TEXT)


class File(Event, kind="file"):
    """A file that the cell has written on rank 0, and that the driver holds for the notebook; `name` is relative to the
    notebook's folder, with slashes."""

    name: str = _required(_TEXT)
    size: int = _required(_COUNT)
    sha256: str = _required(_TEXT)


class Picture(Event, kind="picture"):
    """A picture that the cell has shown: `data` is an image's file in base64, or HTML, which no page may trust."""

    mime: str = _required({"enum": ["image/png", "image/jpeg", "text/html"]})
    data: str = _required(_TEXT)


class Placed(Event, kind="placed"):
    """The notebook has written a file of the cell to `path`, on its machine."""

    name: str = _required(_TEXT)
    path: str = _required(_TEXT)


class Result(Event, kind="result"):
    """The value of the cell's last expression on rank 0: `value` for json and repr, `artifact` otherwise."""

    encoding: str = _required({"enum": ["none", "json", "npy", "keras", "repr"]})
    value: Any = _optional({})
    artifact: str | None = _optional(_TEXT)


class Reference(Event, kind="reference"):
    """A rank's sketch of its rows of --data and, from rank 0, of what the model makes of some; the driver merges them
    into the run's reference.json, and stores none."""

    rows: int = _required(_COUNT)
    inputs: List[Dict[str, Any]] = _required(_OBJECTS)
    outputs: List[Dict[str, Any]] = _required(_OBJECTS)
    sketches: List[Dict[str, Any]] = _required(_OBJECTS)
    output_sketches: List[Dict[str, Any]] = _required(_OBJECTS)


class Watch(Event, kind="watch"):
    """What a monitor has counted so far: `things` are the model's inputs and outputs that have moved most, over the
    newest `rows` rows; `lines` are over time, `totals` of all requests; `advice` says why to train again."""

    model: str = _required(_TEXT)
    log: str = _required(_TEXT)
    window: float = _required(_SECONDS)
    rows: int = _required(_COUNT)
    wanted: int = _required(_COUNT)
    totals: Dict[str, int] = _required({"type": "object", "additionalProperties": _COUNT})
    lines: Dict[str, Any] = _required(_OBJECT)
    things: List[Dict[str, Any]] = _required(_OBJECTS)
    hidden: int = _required(_COUNT)
    bounds: Dict[str, float] = _required({"type": "object", "additionalProperties": _NUMBER})
    error: Dict[str, Any] | None = _required(_nullable(_OBJECT))
    advice: Dict[str, Any] | None = _required(_nullable(_OBJECT))


class Transfer(Event, kind="transfer"):
    """How many bytes of a file have arrived from the driver; made by the notebook for its views, never stored."""

    name: str = _required(_TEXT)
    done: int = _required(_COUNT)
    size: int = _required(_COUNT)


class Notice(Event, kind="notice"):
    """A hint for the user."""

    level: str = _required({"enum": ["info", "warning"]})
    message: str = _required(_TEXT)


#: The kinds of which old events of a long run are merged, as `merging.py` says.
MERGED = ("steps", "sample", "commits", "values")


def is_sound(value: Any) -> bool:
    """Whether a JSON value is an event whose fields have the types and bounds of its kind in SCHEMA.

    Unknown kinds, fields and values of enumerations are those of another version, and pass. `attempt`, `seq` and
    `first` may be missing: an event gets them later.
    """
    if type(value) is not dict or type(value.get("kind")) is not str:
        return False
    rank: Any = value.get("rank")
    moment: Any = value.get("time")
    if type(rank) is not int or not JOB <= rank <= MAX_RANK:
        return False
    if type(moment) not in (int, float) or not 0 <= moment < MAX_TIME:
        return False
    if not (_is_number(value, "attempt", 0) and _is_number(value, "seq", 1) and _is_number(value, "first", 1)):
        return False
    fits = _FIELDS.get(value["kind"])
    return fits is None or fits(value)


def encodable(value: Dict[str, Any]) -> Dict[str, Any]:
    """A JSON object with "?" in place of surrogates: they are in no valid UTF-8 text, and no page can be sent them."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return dict(json.loads(text.encode(errors="replace")))
    return value


def _is_number(event: RawEvent, name: str, least: int) -> bool:
    return name not in event or (type(event[name]) is int and least <= event[name] <= MAX_COUNT)


#: Kind -> the check of its fields.
_FIELDS = {
    name: object_check({"required": list(kind.required), "properties": {**kind.required, **kind.optional}})
    for name, kind in SCHEMA.items()
}


def make(kind: str, rank: int, **fields: Any) -> RawEvent:
    """An event of `kind` from `rank` (or `JOB`), at the present time. The driver adds run, attempt and seq."""
    return dict(fields, v=VERSION, kind=kind, rank=rank, time=time.time())


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
