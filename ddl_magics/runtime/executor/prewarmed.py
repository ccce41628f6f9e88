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

import importlib
import math
import os
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
from . import forked_rank, loading, rank_process
from .forked_rank import ForkedRank

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
#: YARN sets this variable in its containers.
_OF_YARN = "CONTAINER_ID"
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

    of_spark: GPUs of the rank. Does nothing where there is one already, and where it could not outlive the task.
    """
    global _kept
    if _kept is not None and _kept.process.poll() is None and _kept.threads == threads:
        return
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
    _kept = Prewarmed(process, wire.Channel(ours, wire.Identity("rank", -1, 0)), folder, key, dict(threads))


def take(job: JobConfig, variables: dict[str, str], folder: str) -> Started | None:
    """What `rank_process.start(variables, folder)` would start, made by the one that is kept; or None.

    `leave` must be called when it has ended.
    """
    kept = _kept
    if kept is None:
        return None
    if kept.key == _key(job, variables):
        changes = {name: variables.get(name) for name in ("TMPDIR", *kept.threads)}
        made = _claim(kept, {"folder": folder, "variables": changes, "forks": _can_fork()})
        if made is not None:
            return made
    drop()
    return None


def leave(rank: Started) -> None:
    """`rank` has ended. The process that has forked it is kept for another; one that has become it is not."""
    if isinstance(rank.process, ForkedRank) and rank.process.returncode is not None:
        try:
            return rank.process.release()
        except wire.ConnectionLost:
            pass
    drop()


def drop() -> None:
    """End the one that is kept, if any."""
    global _kept
    kept, _kept = _kept, None
    if kept is not None:
        _end(kept)


def _key(job: JobConfig, variables: Mapping[str, str]) -> Any:
    """What must be equal. How many ranks share a host, and so its cores, is not known yet: `workers` stands for it."""
    given = {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "TMPDIR")}
    workers = job.workers if job.executor_cores > 1 else 0  # a rank has one thread for NumPy on one core
    return sys.executable, _packages(), given, workers, job.executor_cores


def _packages() -> list[tuple[str, int]]:
    """(place of modules, when it was changed): pip may have installed others. Keras' settings are among them."""
    keras = os.path.join(os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras"), "keras.json")
    return [(path, _changed(path)) for path in (*rank_process.search_path(), keras)]


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _can_fork() -> bool:
    return _OF_YARN not in os.environ and not os.path.exists(_NVIDIA) and hasattr(os, "waitid")


def _claim(kept: Prewarmed, claim: Mapping[str, Any]) -> Started | None:
    kept.channel.settimeout(CLAIM_SECONDS)
    try:
        kept.channel.send_json(messages.CLAIM, claim)
        if claim["forks"]:
            return Started(*forked_rank.ask(kept.channel))
        kept.channel.recv()
        kept.channel.settimeout(None)
        return Started(kept.process, kept.channel.socket)
    except (wire.ConnectionLost, wire.ProtocolError, OSError):
        return None


def _end(kept: Prewarmed) -> None:
    rank_process.kill(kept.process)
    for open_file in (kept.process.stdout, kept.process.stderr, kept.channel.socket):
        if open_file is not None:
            open_file.close()
    scratch.remove(kept.home)


# -- in the prewarmed process


def wait(channel: wire.Channel, parent: int, home: str, seconds: str, most_bytes: str) -> tuple[wire.Channel, int]:
    """Import TensorFlow, and fork a rank for each claim. Returns in a rank: its channel, and its parent's number.

    Ends this process when it has waited too long for a claim, if it is too large, and with its worker.

    home: the folder of this process alone, which it removes when it ends; the other arguments as for `start`, in text.
    """
    watch = _Watch(parent, home, float(seconds))
    name = _title()
    _set_title(TITLE)
    _load()
    if _resident_bytes() > int(most_bytes):
        _give_up(home)
    own = os.getpid()
    while True:
        try:
            claim = messages.parse(channel.recv()[1])
            watch.claimed()
            made = forked_rank.fork(channel) if claim["forks"] else channel
        except (wire.ConnectionLost, wire.ProtocolError):
            _give_up(home)
        if made is not None:
            break
        watch.waits()
    _become(claim, home)
    _set_title(name)
    if made is channel:
        watch.end()
        channel.send_json(messages.CLAIM, {})
        return channel, parent
    return made, own


class _Watch:
    """Ends this process when its worker has died, also while it imports, or when it has waited for too many seconds."""

    def __init__(self, parent: int, home: str, seconds: float) -> None:
        self._parent, self._home, self._seconds = parent, home, seconds
        self._ended = threading.Event()
        self._deciding = threading.Lock()  # held for good once this process ends: a claim comes too late then
        self.waits()
        threading.Thread(target=self._run, daemon=True).start()

    def waits(self) -> None:
        """From now on it waits for a claim."""
        with self._deciding:
            self._until = time.monotonic() + self._seconds

    def claimed(self) -> None:
        with self._deciding:
            self._until = math.inf

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(TICK_SECONDS):
            with self._deciding:
                if os.getppid() != self._parent or time.monotonic() > self._until:
                    _give_up(self._home)


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 0


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
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # all forks have the same one
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
