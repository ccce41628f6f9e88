"""What `%ddl check` says of a Spark session: its executors, a worker's Python, encryption and files.

`details`: of `driver.api.info`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ddl_magics.wording import counted

#: TensorFlow and the rows of a worker need more than this beside Java.
LEAST_MIB = 1024
#: What a worker imports, as people call it.
_NAMES = {"tensorflow": "TensorFlow", "keras": "Keras", "numpy": "NumPy", "pyarrow": "pyarrow"}


def slots(total: int, free: int, details: Mapping[str, Any]) -> str:
    """How many there are, and are free; of those whose executors have not come, that they have not."""
    ready = int(details.get("ready", total))
    if ready < total:
        return f"{ready} of {counted(total, 'slot')} ready"
    return f"{counted(total, 'slot')}, {free} free"


def executors(details: Mapping[str, Any]) -> str | None:
    """Where the executors are; None where Spark has no executors of their own, or does not tell."""
    count = details.get("executors")
    if count is None:
        return None
    finding, released = counted(int(count), "executor"), int(details.get("released", 0))
    if released:
        return f"{finding}, {released} given back: the next run asks for them again, and %ddl acquire does so now"
    if details.get("dynamic_allocation"):
        slots = details.get("slots")
        finding += f"; Spark itself starts more when there is work, up to {slots} slots, and removes them"
    return finding + container(details)


def container(details: Mapping[str, Any]) -> str:
    """What an executor may use, behind their number; "" where the cluster manager sets no limit."""
    size = details.get("container")
    if not size:
        return ""
    java, overhead = int(size["java"]), int(size["overhead"])
    finding = f"; each may use {java} MiB for Java and {overhead} MiB for its workers (spark.executor.memoryOverhead)"
    workers = max(1, int(size["cores"]) // int(details.get("task_cores", 1)))
    if overhead < LEAST_MIB * workers:
        finding += f", too little for {counted(workers, 'worker')}: raise it to 3g a worker before the session starts"
    return finding


def encryption(details: Mapping[str, Any]) -> str:
    """Whether a run's connections are encrypted."""
    if str(details.get("master", "")).startswith("local"):
        return "not needed: a run's connections stay on this machine"
    by_spark = details.get("encrypted_by") or ()
    if by_spark:
        return f"a run's connections are encrypted, as Spark encrypts ({', '.join(by_spark)}); not with --encrypt no"
    return "none, neither of Spark's own connections nor of a run's: --encrypt yes encrypts a run's"


def file_reading(details: Mapping[str, Any]) -> str:
    """What reads files of --data: the workers themselves, or Spark."""
    version = details.get("pyarrow")
    if version:
        return (
            f"workers read Parquet (pyarrow {version}) and TFRecord themselves where they reach it, else Spark does; "
            "ORC and CSV go through Spark"
        )
    return (
        "Parquet, ORC and CSV go through Spark, and TFRecord that is not on local disks: with pip install pyarrow on "
        "the executors, workers read Parquet and TFRecord themselves"
    )


def python(answer: Mapping[str, Any], is_kernels: bool = False) -> str:
    """A worker's Python, where it comes from, and what it lacks.

    answer: of `driver.api.python_of_worker`. is_kernels: it is that of this process.
    """
    if "unknown" in answer:
        return str(answer["unknown"])
    origin, remedy = _origin(answer, is_kernels)
    path, folder = str(answer["path"]), str(answer["folder"])
    if path.startswith(folder + os.sep):
        path = "." + path[len(folder) :]
    packages: Mapping[str, str | None] = answer["packages"]
    has = "".join(f", {_NAMES[name]} {version}" for name, version in packages.items() if version)
    lacks = " and ".join(_NAMES[name] for name, version in packages.items() if not version)
    return f"Python {answer['version']} at {path}, {origin}{has}" + (f"; lacks {lacks}: {remedy}" if lacks else "")


def _origin(answer: Mapping[str, Any], is_kernels: bool) -> tuple[str, str]:
    """(where a Python comes from, how a package gets there)."""
    if is_kernels:
        return "this kernel's", "pip install the packages"
    setting = answer["setting"]
    if answer["archive"]:
        return f"of the archive {answer['archive']} ({setting})", "pack the packages into that archive"
    environment = f"{answer['environment']} of" if answer["environment"] else "of"
    naming = f"named by {setting}" if setting else "found by its PATH"
    origin = f"{environment} the executor's host or image ({naming})"
    return origin, "install the packages on all nodes, or bring an environment with spark.archives"
