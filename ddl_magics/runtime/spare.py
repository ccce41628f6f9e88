"""The spare: a process that has imported TensorFlow, and waits to become the next rank of its Spark worker.

Most of a launch is the import of TensorFlow. Spark keeps a Python worker for another task until it has been idle for a
minute; each that has run a rank starts one spare, which becomes a rank at most once, so that a cell always meets a
fresh process. Its parent is the worker, as that of any rank: it is counted to its executor, and ends with it.

The spare is claimed where all that a process is given before it starts is equal; else, and where it does not answer,
it is ended and the rank gets a process of its own. It has touched no device and started no pool of threads.
"""

import importlib
import os
import resource
import shutil
import socket
import sys
import tempfile
import threading
import time
from typing import Any, NamedTuple

from . import messages, rank_process, scratch, wire

#: Spark 3.5 ends a worker that has been idle for a minute, and the spare with it; others may be more patient.
IDLE_SECONDS = 600.0
#: TensorFlow 2.21 and Keras 3.15 are 0.6 GB, of which more than half are files that ranks have in common.
MAX_BYTES = 1 << 30
#: For one that is still importing, and then to answer.
CLAIM_SECONDS = 60.0
TICK_SECONDS = 0.5
#: What `ps` and `top` call it while it waits.
TITLE = "ddl-spare"


class Spare(NamedTuple):
    """home: its copy of the runtime; key: what it was started with; threads: names that the rank sets for itself."""

    process: Any  # a Popen
    socket: socket.socket
    home: str
    key: Any
    threads: Any


_kept = None  # this worker's


# -- in the Spark worker


def leave(job, home, threads, seconds=IDLE_SECONDS, most_bytes=MAX_BYTES):
    """Start a spare for runs like `job`, with the runtime of `home` and a rank's `threads` (`worker.thread_settings`).

    Not where it could not outlive the task.
    """
    global _kept
    drop()
    if not os.environ.get("SPARK_REUSE_WORKER"):
        return
    folder = scratch.make("spare")  # the task's own is removed with the task
    try:
        shutil.copytree(os.path.join(home, __package__), os.path.join(folder, __package__))
        variables = rank_process.environment(job, folder, folder)
        key = _key(job, variables)
        for name, value in threads.items():  # of which NumPy's are read when it is imported
            variables.setdefault(name, value)
        process, ours = rank_process.start(variables, folder, folder, str(seconds), str(most_bytes))
    except OSError:  # the next rank starts without one
        scratch.remove(folder)
        return
    _kept = Spare(process, ours, folder, key, tuple(threads))


def take(job, variables, folder):
    """The spare, which is now the process that `rank_process.start(variables, folder)` would start; or None.

    The caller removes its `home` when it has ended.
    """
    global _kept
    spare, _kept = _kept, None
    if spare is None:
        return None
    if spare.key == _key(job, variables) and _claim(spare, variables, folder):
        return spare
    _end(spare)
    return None


def drop():
    """End the spare, if there is one."""
    global _kept
    spare, _kept = _kept, None
    if spare is not None:
        _end(spare)


def _key(job, variables):
    """What must be equal. How many ranks share a host, and so its cores, is not known yet: `size` stands for it."""
    given = {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "TMPDIR")}
    return sys.executable, rank_process.search_path(), given, job["size"], job["executor_cores"]


def _claim(spare, variables, folder):
    changes = {name: variables.get(name) for name in ("TMPDIR",) + spare.threads}
    channel = wire.Channel(spare.socket, wire.Identity("rank", -1, 0))
    channel.settimeout(CLAIM_SECONDS)
    try:
        channel.send_json(messages.CLAIM, {"folder": folder, "variables": changes})
        channel.recv()
        channel.settimeout(None)
    except (wire.ConnectionLost, wire.ProtocolError, OSError):
        return False
    return True


def _end(spare):
    rank_process.kill(spare.process)
    for open_file in (spare.process.stdout, spare.process.stderr, spare.socket):
        open_file.close()
    scratch.remove(spare.home)


# -- in the spare


def wait(channel, parent, home, seconds, most_bytes):
    """Import TensorFlow and return when this process is claimed. Ends it where nobody does, or where it is large.

    home: the folder of this spare alone, which it removes when it ends unclaimed; the other arguments as `leave` has
    them, in text.
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


def _watch(claimed, parent, deadline, home):
    """End a spare whose worker has died, also while it imports, or whose time is over."""
    while not claimed.wait(TICK_SECONDS):
        if os.getppid() != parent or time.monotonic() > deadline:
            _give_up(home)


def _load():
    """All that a rank imports before its cell. What fails here fails again in the rank, which can say so."""
    try:
        import keras  # noqa: F401
        import tensorflow  # noqa: F401

        for module in ("cell", "keras_fit", "outcome", "place", "rank", "rendezvous", "telemetry"):
            importlib.import_module("." + module, __package__)
    except Exception:
        pass


def _become(claim, home):
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


def _give_up(home):
    shutil.rmtree(home, ignore_errors=True)
    os._exit(0)


def _title():
    try:
        with open("/proc/self/comm") as file:
            return file.read().strip()
    except OSError:  # not Linux
        return ""


def _set_title(title):
    try:
        with open("/proc/self/comm", "w") as file:
            file.write(title)
    except OSError:
        pass
