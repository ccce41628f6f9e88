"""The driver's API, in the Python process that holds the SparkContext: launch, poll, stop, fetch, release, info.

Requests and replies are JSON text: a call is the same from the notebook's own process and through Livy. None waits for
the training, which has a thread of its own.
"""

from __future__ import annotations

import atexit
import base64
import importlib.metadata
import json
import os
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Callable, Mapping, MutableMapping

from .. import strategies
from ..cell import names
from ..checkpoints import checkpoint_files, checkpoint_storage
from ..data import cache_lookup, feed, file_feed, sources, tfrecord_folder
from ..data.cache_option import CacheOption
from ..data.columns import DataError, frame_named
from ..data.plan import DataPlan
from ..run_spec import RunSpec
from ..spark import allocation, gpus, jvm_gateway, session_end, slots, spark_error, storage, yarn
from ..spark.settings import conf_of
from ..variables import placing
from ..wording import counted
from . import encryption, environment, out, prediction, uploads, worker_python
from .job import Job
from .job_registry import JobRegistry
from .monitor_job import MonitorJob

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


#: At most this much JSON in a reply of `poll`.
REPLY_BYTES = 60 * 1024
MAX_FETCH_BYTES = 1 << 20
#: The job group of the jobs that look into the cache for the user.
CACHE_GROUP = "ddl_magics cache"

#: The runs of this process.
registry = JobRegistry()
atexit.register(registry.forget_all)


def _error(kind: str, message: str) -> str:
    return json.dumps({"ok": False, "error": {"kind": kind, "message": message}})


def launch(record: str, namespace: Mapping[str, Any]) -> str:
    """Start a run and return at once. record: JSON of a `RunSpec`; namespace: the variables of the session.

    {"ok": true}, or {"ok": false, "error": {"kind", "message"}} where nothing was started: kind "usage", "slots" or
    "spark", message one line.
    """
    try:
        spec = RunSpec.from_record(json.loads(record))
    except ValueError as error:
        return _error("usage", str(error))
    session = _session(namespace)
    if session is None:
        return _error("spark", "there is no active SparkSession in this process; create one, or restart the kernel")
    ended = session_end.why_ended(session.sparkContext)
    if ended is not None:
        return _error("spark", ended)
    if spec.monitor:
        return _launch_monitor(session, spec, namespace)
    sc, run = session.sparkContext, spec.run
    problem = strategies.problem(spec.strategy, spec.cell)
    if problem:
        return _error("usage", problem)
    problem = _slot_problem(sc, spec)
    if problem:
        return _error("slots", problem)
    try:
        cell_files = uploads.take(run) if spec.files else b""
        provided_names = strategies.names_for_cell(spec.strategy, spec.data, spec.validation)
        captured = names.captured(spec.cell, namespace, provided_names, spec.transform)
        packed = names.pack(spec.cell, captured, namespace)
        files = sources.opened(session, spec)
        frames = sources.with_frame(namespace, spec, files)
        prepare = _check_data(spec, frames, files)
        context = jvm_gateway.separate_context(sc)
        resumed = checkpoint_files.sources(context, spec, registry.get(spec.resume)) if spec.resume else ()
        if spec.out:
            storage.check(sc, out.OPTION, spec.out, run)
        if spec.checkpoint:
            folder = checkpoint_storage.folder_of(spec.checkpoint, run)
            storage.check(sc, checkpoint_storage.OPTION, folder, run)
        launched_with = (
            None
            if spec.provenance is False
            else environment.of_launch(sc, captured, frames.get(spec.data or ""), spec.continues_streams)
        )
        job = Job(context, spec, packed, prepare, resumed, cell_files, launched_with)
    except (
        names.NameProblem,
        DataError,
        storage.StorageError,
        checkpoint_files.NoCheckpoint,
        uploads.UploadProblem,
    ) as error:
        return _error("usage", str(error))
    if spec.returns_variables:
        of_functions = names.used_by_functions(captured, namespace)
        placing.awaiting(run, spec.cell, {**of_functions, **captured}, namespace)
    registry.add(run, job)
    job.start()
    return json.dumps({"ok": True})


def _launch_monitor(session: SparkSession, spec: RunSpec, namespace: Mapping[str, Any]) -> str:
    try:
        monitor = MonitorJob(session, spec, namespace)
    except ValueError as error:
        return _error("usage", str(error))
    registry.add(spec.run, monitor)
    monitor.start()
    return json.dumps({"ok": True})


def _session(namespace: Mapping[str, Any]) -> SparkSession | None:
    """The session's own `spark`, if it has one: the active session depends on the thread, and this may be any."""
    from pyspark.sql import SparkSession

    spark = namespace.get("spark")
    return spark if isinstance(spark, SparkSession) else SparkSession._instantiatedSession


def _slot_problem(sc: SparkContext, spec: RunSpec) -> str | None:
    """Why the session cannot give the run its slots, in one line, or None."""
    workers = spec.min_slots
    problem: str | None = gpus.problem(sc, spec.gpus)
    if problem:
        return problem
    limit = slots.total(sc, spec.gpus, allocation.released(sc))
    if spec.strategy in strategies.COLLECTIVE and slots.dynamic_allocation(sc) and spec.min_workers is None:
        elastic = "use --workers 1..%d, " % workers if spec.strategy in strategies.ELASTIC else ""
        return (
            "all-reduce starts its workers together, and Spark refuses that under dynamic allocation: %s"
            "start the session with spark.dynamicAllocation.enabled=false, or use --strategy ps" % elastic
        )
    if workers <= limit:
        return None
    source, remedy = "of %s" % sc.master, "a session with more executors or cores"
    if slots.dynamic_allocation(sc):
        source = "that dynamic allocation gives"
        remedy = "the session with a larger spark.dynamicAllocation.maxExecutors"
    text = "--workers %d asks for more than the %s %s: use --workers %d, or start %s"
    return text % (workers, counted(limit, "slot"), source, max(1, limit), remedy)


def _check_data(
    spec: RunSpec, frames: Mapping[str, Any], source: sources.FileSource | None
) -> Callable[[SparkContext, str, int], feed.Feed] | None:
    """Check --data as far as no rows are needed for it. Returns a function that makes the data, or None without it."""
    name = spec.data
    if not name:
        return None
    plan = DataPlan(name, spec, frames, "" if source is None else source.code)
    files = file_feed.listed(source, spec, plan)
    return lambda sc, group, workers: file_feed.prepare(sc, plan.of_size(workers), group, files)


def cache(request: str) -> str:
    """{"cache", "clear"} -> {"entries": [...]}: what the hosts keep of --data, by the value of --cache.

    An entry has "host", "root", "data", "shares", "bytes", "made" and "used". clear: remove them after that.
    """
    from pyspark import SparkContext

    arguments, sc = json.loads(request), SparkContext._active_spark_context
    option = CacheOption.read(arguments["cache"])
    if sc is None or option is None:
        return json.dumps({"entries": []})

    def ask() -> list[dict[str, Any]]:
        context = jvm_gateway.separate_context(sc)
        entries = cache_lookup.listed(context, option, CACHE_GROUP)
        if arguments["clear"]:
            cache_lookup.clear(context, option, CACHE_GROUP)
        return entries

    try:
        with ThreadPoolExecutor(1) as own_thread:  # the caller's would keep the job group
            return json.dumps({"entries": own_thread.submit(ask).result()})
    except Exception as error:  # Py4J's, of many kinds
        return _error("spark", spark_error.cause(error))


def poll(request: str) -> str:
    """{"run", "after"} -> {"events", "last", "more", "state"}: the events after number `after`, bounded in size."""
    arguments = json.loads(request)
    job = registry.get(arguments["run"])
    if job is None:
        return json.dumps({"events": [], "last": arguments["after"], "more": False, "state": "LOST"})
    state = job.journal.state  # before the log is read: the event of a terminal state is in this reply or the next
    texts, number, has_more = job.journal.log.read(arguments["after"], REPLY_BYTES)
    tail = json.dumps({"last": number, "more": has_more, "state": state})
    return '{"events": [%s], %s' % (", ".join(texts), tail[1:])


def upload(request: str) -> str:
    """{"run", "index", "count", "data": base64} -> {"ok"}: a part of the zip of --files, before the launch."""
    arguments = json.loads(request)
    try:
        uploads.keep(
            str(arguments["run"]), int(arguments["index"]), int(arguments["count"]), base64.b64decode(arguments["data"])
        )
    except ValueError as error:
        return _error("usage", str(error))
    return json.dumps({"ok": True})


def stop(request: str) -> str:
    """{"run"} -> {"ok"}: ask the ranks to finish their step. The run enters a terminal state later.

    A run that is not here yet is stopped when it is launched; "ok" is false then.

    The request may have a "reason": words that follow "stopped" in the message of that state.
    """
    arguments = json.loads(request)
    return json.dumps({"ok": registry.stop(arguments["run"], arguments.get("reason", ""))})


def fetch(request: str) -> str:
    """{"run", "name", "offset", "length"} -> {"data": base64, "size", "sha256"}: a part of an announced artifact."""
    arguments = json.loads(request)
    job = registry.get(arguments["run"])
    if job is None:
        return _error("usage", "the driver has no run %s" % arguments["run"])
    artifact = job.files.artifacts.get(arguments["name"])
    if artifact is None:
        return _error("usage", "run %s has no artifact %r" % (arguments["run"], arguments["name"]))
    with open(artifact.path, "rb") as file:
        file.seek(arguments["offset"])
        block = file.read(min(arguments["length"], MAX_FETCH_BYTES))
    data = base64.b64encode(block).decode("ascii")
    return json.dumps({"data": data, "size": artifact.size, "sha256": artifact.sha256})


def place(request: str, namespace: MutableMapping[str, Any]) -> str:
    """Set variables of the session to what a run has brought; again for models that an earlier call has left.

    {"run", "folder", "mentioned"} -> {"ok", "placed", "kept", "absent", "waiting"}, as `placing.Placed`. folder: with
    the run's artifacts, or null for those that the driver has. mentioned: as `placing.place` takes it.
    """
    arguments = json.loads(request)
    run, folder, job = arguments["run"], arguments["folder"], registry.get(arguments["run"])

    def path_of(name: str) -> str | None:
        if folder is not None:
            path = os.path.join(folder, name)
            return path if os.path.isfile(path) else None
        artifact = None if job is None else job.files.artifacts.get(name)
        return None if artifact is None else artifact.path

    placed = placing.place(run, namespace, path_of, arguments["mentioned"])
    return json.dumps({"ok": True, **asdict(placed)})


def release(request: str) -> str:
    """{"run"} -> {"ok"}: allow that an ended run and its artifacts are forgotten later. False for one in progress."""
    return json.dumps({"ok": registry.release(json.loads(request)["run"])})


def executors(request: str) -> str:
    """{"do": "release" or "acquire"} -> {"ok", "count"}: give all executors back, or ask for them again.

    {"do": "replace", "executor": id} -> {"ok", "count"}: end this one and ask for another; 0 if it was not there.
    """
    from pyspark import SparkContext

    sc = SparkContext._active_spark_context
    if sc is None:
        return _error("spark", "there is no active SparkContext in this process")
    arguments = json.loads(request)
    release = arguments["do"] == "release"
    if release and registry.busy():
        return _error("usage", "a run is in progress in this session: wait for its end")
    try:
        if arguments["do"] == "replace":
            return json.dumps({"ok": True, "count": int(allocation.replace(sc, arguments["executor"]))})
        return json.dumps({"ok": True, "count": allocation.release(sc) if release else allocation.acquire(sc)})
    except allocation.CannotChange as error:
        return _error("spark", str(error))


def _pyarrow() -> str | None:
    """The version that is installed for this Python."""
    try:
        return importlib.metadata.version("pyarrow")
    except importlib.metadata.PackageNotFoundError:
        return None


def predict(request: str, namespace: MutableMapping[str, Any]) -> str:
    """Define a DataFrame of the session with predictions beside its columns.

    {"run", "artifact", "file", "sent", "trust", "data", "name", "features", "output", "batch_rows", "on_error",
    "transform"} -> {"ok": true, "columns": [[name, type]]}, {"ok": false, "error"}, or {"ok": false, "unknown": true}
    where the model must be sent by `upload` first. file: the model's path, if it is on this machine, or None. trust:
    {"sha256", "python"} of the model whose Lambda layers may have the bytecode of that Python, or None. features: as
    `Predictor` takes them. transform: of the run, or None.
    """
    return prediction.reply(lambda: prediction.predict(json.loads(request), namespace, registry.get))


def evaluate(request: str, namespace: Mapping[str, Any]) -> str:
    """Evaluate a model on a DataFrame of the session; returns when that has ended.

    {"run", "artifact", "file", "sent", "trust", "data", "features", "label", "weight", "batch_rows", "transform"} ->
    {"ok": true, "evaluated": as `Evaluated`}, {"ok": false, "error"}, or {"ok": false, "unknown": true} where the model
    must be sent by `upload` first. features, label, weight: as `scoring.evaluation` has them. Else as for `predict`.
    """
    return prediction.reply(lambda: prediction.evaluate(json.loads(request), namespace, registry.get))


def write_tfrecord(request: str, namespace: Mapping[str, Any]) -> str:
    """Write a DataFrame of the session as TFRecord files; returns when that has ended.

    {"data", "uri", "compression"} -> {"ok": true, "rows", "files", "bytes"} or {"ok": false, "error"}.
    """
    arguments = json.loads(request)
    try:
        frame = frame_named("%ddl tfrecord", arguments["data"], namespace)
        return json.dumps(
            {"ok": True, **tfrecord_folder.write(frame, arguments["uri"], arguments["compression"])._asdict()}
        )
    except DataError as error:
        return _error("usage", str(error))


def _container(sc: SparkContext) -> dict[str, int] | None:
    """What an executor may use on YARN, which ends one that uses more."""
    return dict(yarn.container(conf_of(sc), sc._jvm)._asdict()) if sc.master == "yarn" else None


def info(_request: str = "{}") -> str:
    """What this session is: versions, slots, and the settings that matter to a run."""
    from pyspark import SparkContext

    sc = SparkContext._active_spark_context
    if sc is None:
        return _error("spark", "there is no active SparkContext in this process")
    limit = slots.total(sc, None, allocation.released(sc))
    return json.dumps(
        {
            "spark": sc.version,
            "python": platform.python_version(),
            "master": sc.master,
            "app": sc.applicationId,
            "slots": limit,
            "ready": slots.registered_slots(sc),
            "executors": slots.registered(sc) if slots.has_executors(sc) else None,
            "released": allocation.released(sc),
            "free": max(0, limit - registry.busy()),
            "executor_cores": slots.executor_cores(sc),
            "task_cores": slots.task_cores(conf_of(sc)),
            "container": _container(sc),
            "executor_gpus": gpus.per_executor(sc),
            "task_gpus": gpus.per_task(sc),
            "dynamic_allocation": slots.dynamic_allocation(sc),
            "encrypted_by": encryption.settings(sc),
            "pyarrow": _pyarrow(),
        }
    )


def python_of_worker(_request: str = "{}") -> str:
    """The Python of a worker, as `worker_python.ask` says; asks Spark, and takes a moment."""
    from pyspark import SparkContext

    sc = SparkContext._active_spark_context
    try:
        answer = worker_python.ask(sc, registry.busy())
    except Exception as error:  # Py4J's, of many kinds
        answer = {"unknown": "cannot be asked: %s" % spark_error.cause(error)}
    return json.dumps(answer)
