"""A rank's process as its supervisor starts it: what is set before its Python begins, its pipes, its end."""

import os
import signal
import socket
import subprocess
import sys

from . import gpus

#: How long a rank that has said how it ended may take to leave.
EXIT_SECONDS = 10.0


def environment(job, home, folder):
    """Its variables. home: the folder that holds the runtime package; folder: the rank's own."""
    found = dict(os.environ)
    found.update(gpus.environment(job.get("gpus")))
    found["PYTHONPATH"] = os.pathsep.join([home] + search_path())
    found["PYTHONHASHSEED"] = "0"  # sets of strings have one order on all ranks and in all runs
    found["PYTHONUNBUFFERED"] = "1"
    found["KERAS_BACKEND"] = "tensorflow"
    found["TMPDIR"] = folder  # what a rank leaves in temporary folders goes with it
    found.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    found.pop("PYTHONSTARTUP", None)
    return found


def search_path():
    """Where this process finds modules, and the rank after the runtime: files that Spark has brought are there."""
    return [path for path in sys.path if path]


def start(variables, folder, *spare):
    """(the process, this side's socket of its channel). spare: further arguments of `worker`, all text."""
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", __package__ + ".worker", str(theirs.fileno()), str(os.getpid()), *spare],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            cwd=folder,
            env=variables,
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def wait(process):
    """Until it has left, which it is helped to after a while."""
    try:
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        kill(process)


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)  # the group: what the cell started goes too
    except (ProcessLookupError, PermissionError):
        pass
    try:
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # in an uninterruptible call; it dies when that returns
