"""A rank's process as its supervisor starts it: its environment, its pipes, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from typing import IO, Protocol

from .. import package
from ..spark import gpus

#: The longest that a rank may take to exit once it has reported its end.
EXIT_SECONDS = 10.0


class Process(Protocol):
    """What `subprocess.Popen` and `forked_rank.ForkedRank` have in common."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


def environment(home: str, folder: str, of_spark: list[str] | None) -> dict[str, str]:
    """The process's variables.

    home: the folder that holds the runtime package; folder: the rank's own; of_spark: its GPUs, as `gpus.assigned`.
    """
    variables = dict(os.environ)
    variables.update(gpus.environment(of_spark))
    variables["PYTHONPATH"] = os.pathsep.join([home, *search_path()])
    variables["PYTHONHASHSEED"] = "0"  # sets of strings have one order on all ranks and in all runs
    variables["PYTHONUNBUFFERED"] = "1"
    variables["KERAS_BACKEND"] = "tensorflow"
    variables["TMPDIR"] = folder  # what a rank leaves in temporary folders is removed with it
    variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    variables.pop("PYTHONSTARTUP", None)
    return variables


def search_path() -> list[str]:
    """Where this process finds modules, and the rank after the runtime: files that Spark has brought are there."""
    return [path for path in sys.path if path]


def has_notebook(folder: str | None) -> bool:
    """Whether the notebook's folder is on this machine. folder: of the run's spec."""
    return folder is not None and os.path.isdir(folder)


def start(
    variables: dict[str, str], folder: str, separates: bool, *prewarming: str
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """(the process, this side's socket of its channel).

    separates: it gets namespaces of its own; prewarming: more arguments, for `prewarmed_process.wait`.
    """
    parent_socket, child_socket = socket.socketpair()
    module = package.NAME + ".executor.rank_main"
    arguments = [str(int(separates)), str(child_socket.fileno()), str(os.getpid()), *prewarming]
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[child_socket.fileno()],
            cwd=folder,
            env=variables,
            start_new_session=True,
        )
    except BaseException:
        parent_socket.close()
        raise
    finally:
        child_socket.close()
    return process, parent_socket


class Guard:
    """A shell that kills a rank's process group once this process has ended, also by SIGKILL. The rank dies with its
    supervisor anyway, but processes that the cell started would live on, as they do without /bin/sh.
    """

    def __init__(self, group: int) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", 'read -r end; kill -s KILL -- "-$1"', "ddl-guard", str(group)],
                stdin=subprocess.PIPE,  # its other end is in no other process, as the rank is started without it
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """End the shell: the group has ended, and its number may be reused."""
        if self._shell is not None:
            self._shell.kill()
            self._shell.communicate()


def wait(process: Process) -> None:
    """Until it has exited; it is killed if it takes too long."""
    try:
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        kill(process)


def kill(process: Process) -> None:
    """Kill its process group, with all that the cell has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # in an uninterruptible call; it dies when that returns
        process.wait(EXIT_SECONDS)
