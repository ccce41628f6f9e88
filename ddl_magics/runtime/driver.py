"""The runtime's face in the Python process that holds the SparkContext: launch, poll, stop, fetch, release, info.

Every function takes and returns JSON text, so that a call is the same from the notebook's own process and through Livy.
None of them waits for the training: it runs in a thread of its own.
"""

import atexit
import base64
import json
import platform

from . import checkpoint_files, checkpoint_storage, feed, gpus, names, out, own_context, slots, storage, strategies
from .held import Held
from .job import Job

#: At most this much JSON a reply of `poll`.
REPLY_BYTES = 60 * 1024
MAX_FETCH_BYTES = 1 << 20

#: The runs of this process.
held = Held()
atexit.register(held.forget_all)


def _error(kind, message):
    return json.dumps({"ok": False, "error": {"kind": kind, "message": message}})


def launch(spec, namespace):
    """Start a run of `spec` (JSON of a RunSpec) with the session's `namespace`; returns at once.

    {"ok": true}, or, and nothing was started, {"ok": false, "error": {"kind", "message"}}: kind "usage", "slots" or
    "spark", message one line.
    """
    spec = json.loads(spec)
    session = _session(namespace)
    if session is None:
        return _error("spark", "there is no active SparkSession in this process; make one, or restart the kernel")
    sc = session.sparkContext
    problem = strategies.problem(spec["strategy"], spec["cell"])
    if problem:
        return _error("usage", problem)
    problem = _preflight(sc, spec)
    if problem:
        return _error("slots", problem)
    try:
        packed = names.pack(spec["cell"], namespace, strategies.given(spec["strategy"]))
        prepare = _check_data(spec, namespace)
        own = own_context.of(sc)
        resumed = checkpoint_files.of_run(own, spec, held.get(spec["resume"])) if spec.get("resume") else ()
        if spec.get("out"):
            storage.check(sc, out.OPTION, spec["out"], spec["run"])
        if spec.get("checkpoint"):
            folder = checkpoint_storage.folder_of(spec["checkpoint"], spec["run"])
            storage.check(sc, checkpoint_storage.OPTION, folder, spec["run"])
        job = Job(own, spec, packed, prepare, resumed)
    except (names.NameProblem, feed.FeedError, storage.StorageError, checkpoint_files.NoCheckpoint) as error:
        return _error("usage", str(error))
    held.add(spec["run"], job)
    job.start()
    return json.dumps({"ok": True})


def _session(namespace):
    """The session's own `spark` where it has one: the active session is a matter of threads, and this may be any."""
    from pyspark.sql import SparkSession

    named = namespace.get("spark")
    return named if isinstance(named, SparkSession) else SparkSession._instantiatedSession


def _preflight(sc, spec):
    workers = 1 if spec["strategy"] == "single" else spec["workers"]
    lacking = gpus.problem(sc, spec.get("gpus"))
    if lacking:
        return lacking
    most = slots.total(sc, spec.get("gpus"))
    if spec["strategy"] in strategies.COLLECTIVE and slots.dynamic_allocation(sc):
        return (
            "all-reduce needs its workers to stay, and Spark refuses that under dynamic allocation: "
            "start the session with spark.dynamicAllocation.enabled=false, or use --strategy ps"
        )
    if workers > most:
        return (
            "--workers %d asks for more than the %d slot%s of %s: use --workers %d, or start a session with more "
            "executors or cores" % (workers, most, "" if most == 1 else "s", sc.master, max(1, most))
        )
    return None


def _check_data(spec, namespace):
    """A function that makes the run's `feed.Feed`, or None without --data. What needs no job is checked now."""
    name = spec.get("data")
    if not name:
        return None
    plan = feed.check(name, spec, namespace)
    return lambda sc, group: feed.prepare(sc, plan, group)


def poll(request):
    """{"run", "after"} -> {"events", "last", "more", "state"}: what happened since event `after`, bounded in size."""
    request = json.loads(request)
    job = held.get(request["run"])
    if job is None:
        return json.dumps({"events": [], "last": request["after"], "more": False, "state": "LOST"})
    state = job.state  # before the log is read: a terminal state promises that its event is in this reply or the next
    texts, more = job.log.read(request["after"], REPLY_BYTES)
    rest = json.dumps({"last": request["after"] + len(texts), "more": more, "state": state})
    return '{"events": [%s], %s' % (", ".join(texts), rest[1:])


def stop(request):
    """{"run"} -> {"ok"}: ask the ranks to finish their step; the run ends in a terminal state by itself."""
    job = held.get(json.loads(request)["run"])
    if job is not None:
        job.stop()
    return json.dumps({"ok": job is not None})


def fetch(request):
    """{"run", "name", "offset", "length"} -> {"data": base64, "size", "sha256"} of an announced artifact."""
    request = json.loads(request)
    job = held.get(request["run"])
    if job is None:
        return _error("usage", "the driver holds no run %s" % request["run"])
    artifact = job.artifacts.get(request["name"])
    if artifact is None:
        return _error("usage", "run %s has no artifact %r" % (request["run"], request["name"]))
    with open(artifact["path"], "rb") as file:
        file.seek(request["offset"])
        block = file.read(min(request["length"], MAX_FETCH_BYTES))
    data = base64.b64encode(block).decode("ascii")
    return json.dumps({"data": data, "size": artifact["size"], "sha256": artifact["sha256"]})


def release(request):
    """{"run"} -> {"ok"}: an ended run and its artifacts may be forgotten, in a while. A run that goes on is kept."""
    return json.dumps({"ok": held.release(json.loads(request)["run"])})


def info(_request="{}"):
    """What this session is: versions, slots, settings that matter to a run."""
    from pyspark import SparkContext

    sc = SparkContext._active_spark_context
    if sc is None:
        return _error("spark", "there is no active SparkContext in this process")
    most = slots.total(sc)
    return json.dumps(
        {
            "spark": sc.version,
            "python": platform.python_version(),
            "master": sc.master,
            "app": sc.applicationId,
            "slots": most,
            "ready": slots.ready(sc),
            "free": max(0, most - held.busy()),
            "executor_cores": slots.executor_cores(sc),
            "executor_gpus": gpus.of_executor(sc),
            "task_gpus": gpus.of_task(sc),
            "dynamic_allocation": slots.dynamic_allocation(sc),
        }
    )
