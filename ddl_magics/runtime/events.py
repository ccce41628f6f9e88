"""The one schema of events: what a run tells those who watch it.

An event is a JSON object. Ranks and supervisors make them, the driver gives them their sequence number, the
notebook stores them, and every view is drawn from them alone. Readers ignore kinds and fields that they do not know.

`SCHEMA` describes each kind; `json_schema()` exports it, and the TypeScript types are made from that export.
"""

import time

VERSION = 1

#: Rank of events that speak for the job as a whole.
JOB = -1

QUEUED, PREFLIGHT, SUBMITTED, WAITING, RUNNING = "QUEUED", "PREFLIGHT", "SUBMITTED", "WAITING", "RUNNING"
STOPPING, STOPPED, FINISHED, FAILED, LOST = "STOPPING", "STOPPED", "FINISHED", "FAILED", "LOST"
STATES = (QUEUED, PREFLIGHT, SUBMITTED, WAITING, RUNNING, STOPPING, STOPPED, FINISHED, FAILED, LOST)
TERMINAL = frozenset((STOPPED, FINISHED, FAILED, LOST))

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_NUMBER = {"type": "number"}
_SECONDS = {"type": "number", "minimum": 0, "description": "seconds"}
_METRICS = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}


def _optional(schema):
    return dict(schema, type=[schema["type"], "null"])


_GPU = {
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

_FAILURE = {
    "type": ["object", "null"],
    "description": "why the run failed: the one root cause",
    "properties": {
        "rank": {"type": "integer"},
        "host": _TEXT,
        "kind": {"enum": ["error", "exit", "signal", "nan", "diverged", "peer", "lost", "spark"]},
        "message": _TEXT,
        "traceback": _TEXT,
    },
    "required": ["rank", "host", "kind", "message", "traceback"],
}

#: kind -> (what it says, its required fields, its optional fields). Sizes are bytes, times are seconds.
SCHEMA = {
    "state": (
        "the run changed state",
        {"state": {"enum": list(STATES)}, "message": _TEXT},
        {"ready": _COUNT, "needed": _COUNT, "failure": _FAILURE},
    ),
    "worker": (
        "what a rank is and how it is: sent when it starts and whenever its state changes",
        {"host": _TEXT, "pid": _COUNT, "device": _TEXT, "state": _TEXT},
        {
            "cores": _COUNT,
            "message": _TEXT,
            "versions": {
                "type": "object",
                "additionalProperties": _TEXT,
                "description": "of the rank's Python, TensorFlow and Keras, and of Spark, once they are loaded",
            },
        },
    ),
    "fit": (
        "a call of model.fit begins; `steps` is per epoch and null where it is not known, `batch_size` is the "
        "global batch for all-reduce and the worker's batch for ps",
        {"fit": _COUNT, "model": _TEXT, "epochs": _COUNT, "steps": _optional(_COUNT)},
        {"batch_size": _optional(_COUNT), "parameters": _optional(_COUNT)},
    ),
    "steps": (
        "a bucket of consecutive steps of one rank: the counts of a rank's buckets add up to its steps. `metrics` "
        "are Keras' running values at the end of the bucket, `compute` and `wait` add up the bucket's step times; of "
        "`wait`, `copy` went to moving and adding data on the host, `wire` to the network; the rest waited for others",
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
        {"copy": _SECONDS, "wire": _SECONDS},
    ),
    "epoch": (
        "an epoch of the whole job ended, with the metrics that Keras' History holds",
        {"fit": _COUNT, "epoch": _COUNT, "metrics": _METRICS, "seconds": _SECONDS},
        {},
    ),
    "member": (
        "ensemble: an epoch of this rank's own model ended; of the one of rank 0 `epoch` tells",
        {"fit": _COUNT, "epoch": _COUNT, "metrics": _METRICS},
        {},
    ),
    "fit_end": ("a call of model.fit returned", {"fit": _COUNT, "stopped": {"type": "boolean"}}, {}),
    "sample": (
        "what a rank's process uses; `cpu` is in percent of one core, `gpus` is null where there is no GPU",
        {"cpu": _NUMBER, "memory": _COUNT, "gpus": {"type": ["array", "null"], "items": _GPU}},
        {},
    ),
    "log": ("text that a rank printed, whole lines", {"stream": {"enum": ["stdout", "stderr"]}, "text": _TEXT}, {}),
    "values": ("what the cell passed to ddl.log()", {"metrics": _METRICS, "step": _optional(_COUNT)}, {}),
    "commits": (
        "parameter server: this rank's commits since the last such event, `seconds` ago, and how stale they were: the "
        "mean, the most, and in `histogram` how many were 0, 1, 2 to 3, 4 to 7, 8 to 15, ... commits late",
        {"commits": _COUNT, "staleness": {"type": "number"}, "staleness_max": _COUNT},
        {"seconds": _SECONDS, "histogram": {"type": "array", "items": _COUNT}},
    ),
    "artifact": (
        "a file that the driver holds for the notebook, or has written to `uri`, as --out says",
        {"name": _TEXT, "size": _COUNT, "sha256": _TEXT},
        {"uri": _TEXT},
    ),
    "result": (
        "the value of the cell's last expression on rank 0: `value` for json and repr, else the artifact's name",
        {"encoding": {"enum": ["none", "json", "npy", "keras", "repr"]}},
        {"value": {}, "artifact": _TEXT},
    ),
    "transfer": (
        "the notebook's own, for its views alone: how many bytes of a file have come from the driver; never stored",
        {"name": _TEXT, "done": _COUNT, "size": _COUNT},
        {},
    ),
    "notice": ("a hint for the reader", {"level": {"enum": ["info", "warning"]}, "message": _TEXT}, {}),
}


def make(kind, rank, **fields):
    """An event of `kind` by `rank` (or `JOB`), timed now; the driver adds run, attempt and seq."""
    return dict(fields, v=VERSION, kind=kind, rank=rank, time=time.time())


def json_schema():
    """The JSON Schema of an event as the driver hands it out."""
    envelope = {
        "v": {"const": VERSION},
        "run": _TEXT,
        "attempt": _COUNT,
        "rank": {"type": "integer", "minimum": JOB},
        "seq": {"type": "integer", "minimum": 1, "description": "1, 2, 3, ... within the run, no gaps"},
        "time": {"type": "number", "description": "seconds since the epoch, clock of the event's maker"},
    }
    kinds = []
    for kind, (says, required, optional) in SCHEMA.items():
        properties = dict(envelope, kind={"const": kind})
        properties.update(required)
        properties.update(optional)
        kinds.append(
            {
                "title": kind,
                "description": says,
                "type": "object",
                "properties": properties,
                "required": sorted(envelope) + ["kind"] + sorted(required),
            }
        )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ddl_magics event",
        "oneOf": kinds,
    }
