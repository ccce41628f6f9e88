"""The driver's API for a Livy session: by statements, and by jobs of Livy's side channel, which run beside them.

A function that the side channel may call never asks Spark. Under Livy job groups belong to the JVM's threads, and such
a call would take over the group of the running statement. Every function may be called again with the same request: its
reply may be lost on the way, and the notebook then asks once more.
"""

from __future__ import annotations

import json
from typing import Any, Callable

from . import api, batch


def launch(spec: str, namespace: dict[str, Any]) -> str:
    """`api.launch`, which does nothing for a run that it has started before."""
    if api.registry.get(json.loads(spec)["run"]) is not None:
        return json.dumps({"ok": True})
    return api.launch(spec, namespace)


def busy(_request: str = "{}") -> str:
    """{} -> {"busy": slots that runs in progress take}."""
    return json.dumps({"busy": api.registry.busy()})


def runs(_request: str = "{}") -> str:
    """{} -> {"runs": [{"run", "state", "spec"}, ...]}, the oldest first: for a notebook that does not know them."""
    records = [
        {"run": run, "state": job.journal.state, "spec": job.spec.to_record()}
        for run, job in api.registry.all().items()
    ]
    return json.dumps({"runs": records})


#: What the side channel may call.
SIDE_CHANNEL_CALLS: dict[str, Callable[[str], str]] = {
    "poll": api.poll,
    "stop": api.stop,
    "fetch": api.fetch,
    "release": api.release,
    "upload": api.upload,
    "busy": busy,
    "runs": runs,
}
#: What a statement may call.
CALLS: dict[str, Callable[..., str]] = dict(
    SIDE_CHANNEL_CALLS,
    launch=launch,
    info=api.info,
    executors=api.executors,
    python_of_worker=api.python_of_worker,
    cache=api.cache,
    predict=api.predict,
    evaluate=api.evaluate,
    place=api.place,
    write_tfrecord=api.write_tfrecord,
    write_batch=batch.write,
)


def job(request: str) -> Callable[[object], str]:
    """The job that answers `request`, JSON of {"function", "argument"}: what the pickle of the side channel calls."""
    parsed = json.loads(request)
    function = SIDE_CHANNEL_CALLS[parsed["function"]]
    return lambda _context: function(parsed["argument"])
