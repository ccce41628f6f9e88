"""The main loop of the prewarmed process (prewarmed.py): import TensorFlow, fork a rank for each claim."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import shutil
import sys
import tempfile
import threading
import time
from typing import Any, Mapping, NoReturn

from .. import package
from ..files import namespaces
from ..transport import messages, wire
from . import forked_rank, loading, telemetry

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


def wait(channel: wire.Channel, parent: int, home: str, seconds: str, most_bytes: str) -> tuple[wire.Channel, int]:
    """Import TensorFlow, and fork a rank for each claim. Returns in a rank: its channel, and its parent's number.

    Ends this process when it has waited too long for a claim, if it is too large, and with its worker.

    home: the folder of this process alone, which it removes when it ends; others as for `prewarmed.start`, in text.
    """
    watch = _Watch(parent, home, float(seconds))
    name = telemetry.proc_text("self", "comm").strip()
    _set_title(TITLE)
    _load()
    sizes = telemetry.proc_text("self", "statm").split()  # none where this is not Linux
    if sizes and int(sizes[1]) * os.sysconf("SC_PAGE_SIZE") > int(most_bytes):
        _give_up(home)
    pid = os.getpid()
    while True:
        try:
            claim = messages.parse(channel.recv()[1])
            watch.claimed()
            rank_channel = forked_rank.fork(channel) if claim["forks"] else channel
        except (wire.ConnectionLost, wire.ProtocolError):
            _give_up(home)
        if rank_channel is not None:
            break
        watch.waits()
    _become(claim, home)
    _set_title(name)
    if rank_channel is channel:
        watch.stop()
        channel.send_json(messages.CLAIM, {})
        return channel, parent
    if namespaces.own:
        namespaces.separate()  # what it mounts is not for this process' other forks
    return rank_channel, pid


class _Watch:
    """Ends this process when its worker has died, also while it imports, or when it has waited for too many seconds."""

    def __init__(self, parent: int, home: str, seconds: float) -> None:
        self._parent, self._home, self._seconds = parent, home, seconds
        self._stopped = threading.Event()
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

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            with self._deciding:
                if os.getppid() != self._parent or time.monotonic() > self._until:
                    _give_up(self._home)


def _load() -> None:
    """Import all that a rank imports before its cell. A failure recurs in the rank, which can report it."""
    with contextlib.suppress(Exception), loading.without_collection():
        import keras  # noqa: F401
        import tensorflow  # noqa: F401

        for module in PRELOADED:
            importlib.import_module("%s.%s" % (package.NAME, module))


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


def _set_title(title: str) -> None:
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(title)
