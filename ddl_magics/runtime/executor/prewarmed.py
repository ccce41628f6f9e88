"""A prewarmed process: it has imported TensorFlow, and each later rank of its Spark worker is a fork of it.

Most of a launch is the import of TensorFlow. Spark keeps a Python worker for another task until it has been idle for a
minute. A worker that has run a rank starts one prewarmed process, which runs no cell itself: a cell always gets a fresh
process. Its parent is the worker, as that of a first rank: it counts to its executor, and ends with it.

It becomes the next rank instead in a container of YARN, which counts memory that two processes have in common twice,
and on hosts with GPUs, as CUDA does not work in a fork of a process that has called it.

It is claimed only for a rank that would be started with the same environment. Otherwise, or if it does not answer, it
is ended, and the rank gets a process of its own. It has touched no device, and its only threads are those of OpenBLAS,
which ends them for a fork, and the one that watches its worker.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import Any, Mapping, NamedTuple

from .. import package, scratch
from ..rank.config import JobConfig
from ..transport import messages, wire
from . import forked_rank, rank_process
from .forked_rank import ForkedRank

#: Spark 3.5 ends a worker that has been idle for a minute, and its prewarmed process with it; others may wait longer.
IDLE_SECONDS = 600.0
#: TensorFlow 2.21 and Keras 3.15 take 0.6 GB, of which more than half are files that ranks have in common.
MAX_BYTES = 1 << 30
#: For one that is still importing, and then to answer.
CLAIM_SECONDS = 60.0
#: YARN sets this variable in its containers.
_OF_YARN = "CONTAINER_ID"
#: The ends of the names that pip and conda give to the metadata of a package, and to the paths of an editable install.
_OF_PIP = (".dist-info", ".egg-info", ".pth")
#: There is this file where NVIDIA's driver is.
_NVIDIA = "/dev/nvidiactl"


class Prewarmed(NamedTuple):
    """home: its copy of the runtime; key: what it was started with; threads: variables that a rank sets."""

    process: subprocess.Popen[bytes]
    channel: wire.Channel
    home: str
    key: Any
    threads: dict[str, str]


class Started(NamedTuple):
    """The process of a rank, and this side's socket of its channel."""

    process: rank_process.Process
    socket: socket.socket


_prewarmed: Prewarmed | None = None  # this worker's


def start(
    job: JobConfig,
    of_spark: list[str] | None,
    runtime: bytes,
    threads: Mapping[str, str],
    seconds: float = IDLE_SECONDS,
    most_bytes: int = MAX_BYTES,
) -> None:
    """Start one for runs like `job`, with this runtime and a rank's `threads` (`worker.thread_settings`).

    runtime: what `package.own_zip` returned; of_spark: GPUs of the rank. Does nothing where there is one already, and
    where it could not outlive the task.
    """
    global _prewarmed
    if _prewarmed is not None and _prewarmed.process.poll() is None and _prewarmed.threads == threads:
        return
    drop()
    if not os.environ.get("SPARK_REUSE_WORKER"):
        return
    folder = scratch.make("prewarmed")  # the task's own is removed with the task
    try:
        package.unpack(runtime, folder)
        variables = rank_process.environment(folder, folder, of_spark)
        key = _key(job, variables)
        for name, value in threads.items():  # NumPy reads some of them when it is imported
            variables.setdefault(name, value)
        separates = rank_process.has_notebook(job.spec.folder)
        prewarming = (folder, str(seconds), str(most_bytes))
        process, channel_socket = rank_process.start(variables, folder, separates, *prewarming)
    except OSError:  # the next rank starts without one
        scratch.remove(folder)
        return
    channel = wire.Channel(channel_socket, wire.Identity("rank", -1, 0))
    _prewarmed = Prewarmed(process, channel, folder, key, dict(threads))


def take(job: JobConfig, variables: dict[str, str], folder: str) -> Started | None:
    """The rank that `rank_process.start` would start, from the prewarmed process; or None.

    Call `leave` when it has ended.
    """
    prewarmed = _prewarmed
    if prewarmed is None:
        return None
    if prewarmed.key == _key(job, variables):
        changes = {name: variables.get(name) for name in ("TMPDIR", *prewarmed.threads)}
        forks = _OF_YARN not in os.environ and not os.path.exists(_NVIDIA) and hasattr(os, "waitid")
        started = _claim(prewarmed, {"folder": folder, "variables": changes, "forks": forks})
        if started is not None:
            return started
    drop()
    return None


def leave(rank: Started) -> None:
    """`rank` has ended. The process that has forked it is kept for another; one that has become it is not."""
    if isinstance(rank.process, ForkedRank) and rank.process.returncode is not None:
        with contextlib.suppress(wire.ConnectionLost):
            return rank.process.release()
    drop()


def drop() -> None:
    """End the prewarmed process, if any."""
    global _prewarmed
    prewarmed, _prewarmed = _prewarmed, None
    if prewarmed is not None:
        _terminate(prewarmed)


def _key(job: JobConfig, variables: Mapping[str, str]) -> Any:
    """What must be equal. How many ranks share a host, and so its cores, is not known yet: `workers` stands for it."""
    environment = {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "TMPDIR")}
    workers = job.workers if job.executor_cores > 1 else 0  # a rank has one thread for NumPy on one core
    separates = rank_process.has_notebook(job.spec.folder)
    return sys.executable, _packages(), environment, workers, job.executor_cores, separates


def _packages() -> list[tuple[str, Any]]:
    """(place of modules, what pip has installed there): it may have installed others. Keras' settings are among them.

    A file beside the packages, such as a notebook in the folder of an editable install, is no reason for another start.
    """
    keras = os.path.join(os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras"), "keras.json")
    return [(path, _installed(path)) for path in (*rank_process.search_path(), keras)]


def _installed(path: str) -> Any:
    """(name, when it was changed) of each package's metadata in a folder; of an archive, when it was changed."""
    try:
        with os.scandir(path) as entries:
            return sorted((entry.name, entry.stat().st_mtime_ns) for entry in entries if entry.name.endswith(_OF_PIP))
    except NotADirectoryError:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _claim(prewarmed: Prewarmed, claim: Mapping[str, Any]) -> Started | None:
    prewarmed.channel.settimeout(CLAIM_SECONDS)
    try:
        prewarmed.channel.send_json(messages.CLAIM, claim)
        if claim["forks"]:
            return Started(*forked_rank.ask(prewarmed.channel))
        prewarmed.channel.recv()
        prewarmed.channel.settimeout(None)
        return Started(prewarmed.process, prewarmed.channel.socket)
    except (wire.ConnectionLost, wire.ProtocolError, OSError):
        return None


def _terminate(prewarmed: Prewarmed) -> None:
    rank_process.kill(prewarmed.process)
    for open_file in (prewarmed.process.stdout, prewarmed.process.stderr, prewarmed.channel.socket):
        if open_file is not None:
            open_file.close()
    scratch.remove(prewarmed.home)
