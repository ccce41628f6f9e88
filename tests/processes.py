"""Which processes a test run has left behind: every rank and supervisor of ours shows in a snapshot of /proc."""

import os
import time
import uuid
from pathlib import Path

#: Stands in the command line of every process of the shipped runtime.
MARK = "ddl_runtime_"

#: Inherited by all that the tests start, so that a snapshot leaves other people's runs out.
SESSION_VARIABLE = "DDL_MAGICS_TEST_SESSION"


def start_session():
    """Mark this process and its descendants as one test session."""
    os.environ.setdefault(SESSION_VARIABLE, uuid.uuid4().hex)


def our_processes():
    """Command lines of this session's runtime processes, by pid, without spares: those are meant to stay.

    Zombies are counted out: they run nothing.
    """
    return {pid: command for pid, command in _all().items() if not _is_spare(pid)}


def spares():
    """Process numbers of the spares of this session that wait for a run."""
    return {pid for pid in _all() if _is_spare(pid)}


def _is_spare(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "ddl-spare\n"
    except OSError:  # it ended meanwhile
        return False


def _all():
    session = f"{SESSION_VARIABLE}={os.environ[SESSION_VARIABLE]}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if MARK in command and session in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = command
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended meanwhile, or is another user's
    return found


def wait_until_gone(seconds=10):
    """`our_processes()` once there are none, or what is still there after `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := our_processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def executor_of(pid):
    """The process of the Spark executor that a rank's process descends from."""
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return pid


def mapped_memory(pid):
    """The files (their numbers) of the runtime's shared memory that a process has in use."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:  # it is gone, or another user's
        return set()
    return {line.split()[4] for line in lines if "memfd:ddl_magics" in line}
