"""Which processes a test run has left behind: every rank and supervisor of ours shows in a snapshot of /proc."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from support.paths import environment

#: Stands in the command line of every process of the shipped runtime.
MARK = "ddl_runtime_"

#: Inherited by all that the tests start, so that a snapshot leaves other people's runs out.
SESSION_VARIABLE = "DDL_MAGICS_TEST_SESSION"

#: Behind the session's name in the processes of `rank_pool`, whose prewarmed processes are not Spark's.
OF_POOL = "-executors"


def start_session():
    """Mark this process and its descendants as one test session; each process of `pytest -n` is one."""
    os.environ[SESSION_VARIABLE] = uuid.uuid4().hex


def completed(command, **how):
    """The process of a command, which ends well and whose output is text; `how` is that of subprocess.run."""
    process = subprocess.run(command, capture_output=True, text=True, **how)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    return process


def our_processes():
    """Command lines of this session's runtime processes, by pid, without prewarmed ones: those are meant to stay.

    Those of `rank_pool` are among them. Zombies are counted out: they run nothing.
    """
    return {pid: command for pid, command in _all("", OF_POOL).items() if not _is_prewarmed(pid)}


def prewarmed():
    """Process numbers of the prewarmed processes of this session's Spark: they wait for a run."""
    return {pid for pid in _all("") if _is_prewarmed(pid)}


def _is_prewarmed(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "ddl-prewarmed\n"
    except OSError:  # it ended meanwhile
        return False


def _all(*suffixes):
    return {pid: command for pid, command in session(*suffixes).items() if MARK in command}


def session(*suffixes):
    """Command lines of all that this session has started and that has inherited its variables, by pid."""
    variables = {f"{SESSION_VARIABLE}={os.environ[SESSION_VARIABLE]}{suffix}".encode() for suffix in suffixes or [""]}
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if not variables.isdisjoint((folder / "environ").read_bytes().split(b"\0")):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
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


def parent(pid):
    """The process that started it. OSError where there is none any more."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def has_ended(pid):
    """Also as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def output_of(module, *arguments, timeout, **options):
    """What a module of the tests prints in a process of its own, which must end well."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return completed(command, env=environment(), timeout=timeout, **options).stdout


def executor_of(pid):
    """The process of the Spark executor that a rank's process descends from."""
    return _ancestor(pid, b"CoarseGrainedExecutorBackend")


def supervisor_of(pid):
    """The worker of Spark that a rank's process descends from: its parent, or the parent of what has forked it."""
    return _ancestor(pid, b"pyspark.daemon")


def _ancestor(pid, word):
    while word not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = parent(pid)
    return pid


def mapped_memory(pid):
    """The files (their numbers) of the runtime's shared memory that a process has in use."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:  # it is gone, or another user's
        return set()
    return {line.split()[4] for line in lines if "memfd:ddl_magics" in line}


def shared_files():
    """Names in /dev/shm, without those that test_holdings.py plants, in another process of `pytest -n` perhaps."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("ddl-test-leak")}
