"""What a run has left: processes, sockets, shared memory, temporary folders."""

import fcntl
import os
import time
from pathlib import Path

from support import processes

from ddl_magics.runtime import scratch

CLEAR_SECONDS = 15.0
#: More sockets than after the first run may be connections that Spark has opened meanwhile.
SPARE_SOCKETS = 12
#: A folder of a killed process is removed by a later run, once it is older than a minute.
FORGOTTEN_SECONDS = 300.0

_sockets = {}  # by kernel: after its first run


def processes_after(scene, seconds):
    """The processes of runs that are still there after so many seconds, also those that wait for the next run."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        waiting = filter(scene.has, processes.prewarmed())  # those of the other scene stay
        left = {**processes.our_processes(), **dict.fromkeys(waiting, "prewarmed")}
        if not left:
            break
        time.sleep(0.2)
    return left


def of(scene):
    """What an ended run has left, a line each."""
    found = []
    left = processes.wait_until_gone(CLEAR_SECONDS)
    if left:
        found.append(f"processes are left: {left}")
    shared = [name for name in processes.shared_files() if name.startswith("ddl")]
    if shared:
        found.append(f"/dev/shm has {shared}")
    sockets = _count_sockets(scene.kernel.pid)
    most = _sockets.setdefault(scene.kernel.pid, sockets) + SPARE_SOCKETS
    if sockets > most:
        found.append(f"the kernel has {sockets} sockets, and had {_sockets[scene.kernel.pid]} after its first run")
    found += [f"{folder} is left" for folder in _forgotten(scene)]
    return found


def _count_sockets(pid):
    try:
        return sum(os.readlink(entry).startswith("socket:") for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def _forgotten(scene):
    """Old folders of ours that no process owns."""
    for place in scene.temporary_folders():
        for folder in place.glob(scratch.PREFIX + "*"):
            try:
                with open(folder / scratch.LOCK) as lock:
                    if time.time() - os.fstat(lock.fileno()).st_mtime < FORGOTTEN_SECONDS:
                        continue
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                continue
            yield folder
