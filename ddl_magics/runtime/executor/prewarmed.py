"""A prewarmed process: it has imported TensorFlow, and waits to become the next rank of its Spark worker.

Most of a launch is the import of TensorFlow. Spark keeps a Python worker for another task until it has been idle for a
minute. A worker that has run a rank starts one prewarmed process, which becomes a rank at most once: a cell always
gets a fresh process. Its parent is the worker, as that of any rank: it counts to its executor, and ends with it.

It is claimed only for a rank that would be started with the same environment. Otherwise, or if it does not answer, it
is ended, and the rank gets a process of its own. It has touched no device and started no pool of threads.
"""

from __future__ import annotations

import importlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Mapping, NamedTuple, NoReturn

from .. import package, scratch
from ..rank.config import JobConfig
from ..transport import messages, wire
from . import loading, rank_process

#: Spark 3.5 ends a worker that has been idle for a minute, and its prewarmed process with it; others may wait longer.
IDLE_SECONDS = 600.0
#: TensorFlow 2.21 and Keras 3.15 take 0.6 GB, of which more than half are files that ranks have in common.
MAX_BYTES = 1 << 30
#: For one that is still importing, and then to answer.
CLAIM_SECONDS = 60.0
TICK_SECONDS = 0.5
#: Its name in `ps` and `top` while it waits.
TITLE = "ddl-prewarmed"
#: What a rank imports before its cell, beside Keras and TensorFlow.
PRELOADED = (
    "cell.ending",
    "cell.execution",
    "collectives.peer_listener",
    "collectives.rendezvous",
    "executor.startup",
    "training.keras_fit",
)


class Prewarmed(NamedTuple):
    """home: its copy of the runtime; key: what it was started with; threads: names of variables that the rank sets."""

    process: subprocess.Popen[bytes]
    socket: socket.socket
    home: str
    key: Any
    threads: tuple[str, ...]


_kept: Prewarmed | None = None  # this worker's


# -- in the Spark worker


def start(
    job: JobConfig,
    of_spark: list[str] | None,
    home: str,
    threads: Mapping[str, str],
    seconds: float = IDLE_SECONDS,
    most_bytes: int = MAX_BYTES,
) -> None:
    """Start one for runs like `job`, with the runtime of `home` and a rank's `threads` (`worker.thread_settings`).

    of_spark: GPUs of the rank. Does nothing where it could not outlive the task.
    """
    global _kept
    drop()
    if not os.environ.get("SPARK_REUSE_WORKER"):
        return
    folder = scratch.make("prewarmed")  # the task's own is removed with the task
    try:
        shutil.copytree(os.path.join(home, package.NAME), os.path.join(folder, package.NAME))
        variables = rank_process.environment(folder, folder, of_spark)
        key = _key(job, variables)
        for name, value in threads.items():  # NumPy reads some of them when it is imported
            variables.setdefault(name, value)
        process, ours = rank_process.start(variables, folder, folder, str(seconds), str(most_bytes))
    except OSError:  # the next rank starts without one
        scratch.remove(folder)
        return
    _kept = Prewarmed(process, ours, folder, key, tuple(threads))


def take(job: JobConfig, variables: dict[str, str], folder: str) -> Prewarmed | None:
    """The one that is kept, now the process that `rank_process.start(variables, folder)` would start; or None.

    The caller removes its `home` when it has ended.
    """
    global _kept
    kept, _kept = _kept, None
    if kept is None:
        return None
    if kept.key == _key(job, variables) and _claim(kept, variables, folder):
        return kept
    _end(kept)
    return None


def drop() -> None:
    """End the one that is kept, if any."""
    global _kept
    kept, _kept = _kept, None
    if kept is not None:
        _end(kept)


def _key(job: JobConfig, variables: Mapping[str, str]) -> Any:
    """What must be equal. How many ranks share a host, and so its cores, is not known yet: `workers` stands for it."""
    given = {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "TMPDIR")}
    return sys.executable, rank_process.search_path(), given, job.workers, job.executor_cores


def _claim(kept: Prewarmed, variables: Mapping[str, str], folder: str) -> bool:
    changes = {name: variables.get(name) for name in ("TMPDIR", *kept.threads)}
    channel = wire.Channel(kept.socket, wire.Identity("rank", -1, 0))
    channel.settimeout(CLAIM_SECONDS)
    try:
        channel.send_json(messages.CLAIM, {"folder": folder, "variables": changes})
        channel.recv()
        channel.settimeout(None)
    except (wire.ConnectionLost, wire.ProtocolError, OSError):
        return False
    return True


def _end(kept: Prewarmed) -> None:
    rank_process.kill(kept.process)
    for open_file in (kept.process.stdout, kept.process.stderr, kept.socket):
        if open_file is not None:
            open_file.close()
    scratch.remove(kept.home)


# -- in the prewarmed process


def wait(channel: wire.Channel, parent: int, home: str, seconds: str, most_bytes: str) -> None:
    """Import TensorFlow and return when this process is claimed. Ends it when time is over, or if it is too large.

    home: the folder of this process alone, which it removes when it ends unclaimed; the other arguments as for `start`,
    in text.
    """
    claimed = threading.Event()
    deadline = time.monotonic() + float(seconds)
    threading.Thread(target=_watch, args=(claimed, parent, deadline, home), daemon=True).start()
    name = _title()
    _set_title(TITLE)
    _load()
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > int(most_bytes):
        _give_up(home)
    try:
        claim = messages.parse(channel.recv()[1])
    except (wire.ConnectionLost, wire.ProtocolError):
        _give_up(home)
    claimed.set()
    _become(claim, home)
    _set_title(name)
    channel.send_json(messages.CLAIM, {})


def _watch(claimed: threading.Event, parent: int, deadline: float, home: str) -> None:
    """End this process when its worker has died, also while it imports, or when its time is over."""
    while not claimed.wait(TICK_SECONDS):
        if os.getppid() != parent or time.monotonic() > deadline:
            _give_up(home)


def _load() -> None:
    """Import all that a rank imports before its cell. What fails here fails again in the rank, which can say so."""
    try:
        with loading.without_collection():
            import keras  # noqa: F401
            import tensorflow  # noqa: F401

            for module in PRELOADED:
                importlib.import_module("%s.%s" % (package.NAME, module))
    except Exception:
        pass


def _become(claim: Mapping[str, Any], home: str) -> None:
    """Take on what a rank's process is started with."""
    os.chdir(claim["folder"])
    if os.path.realpath(sys.path[0]) == os.path.realpath(home):  # python -m puts the folder it was started in there
        sys.path[0] = claim["folder"]
    for name, value in claim["variables"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    tempfile.tempdir = None  # to be found anew
    importlib.invalidate_caches()  # Spark may have brought files meanwhile


def _give_up(home: str) -> NoReturn:
    shutil.rmtree(home, ignore_errors=True)
    os._exit(0)


def _title() -> str:
    try:
        with open("/proc/self/comm") as file:
            return file.read().strip()
    except OSError:  # not Linux
        return ""


def _set_title(title: str) -> None:
    try:
        with open("/proc/self/comm", "w") as file:
            file.write(title)
    except OSError:
        pass
