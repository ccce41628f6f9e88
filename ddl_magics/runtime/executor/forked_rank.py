"""A rank's process forked by a prewarmed one, and the protocol by which its supervisor gets it.

On the prewarmed process' channel, the supervisor sends CLAIM and the rank's file descriptors. The process answers with
the rank's pid and, when the rank exits, with its status. FORK_ENDED of the supervisor then frees the pid.
"""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
import subprocess
import threading
from typing import IO

from ..transport import messages, wire

#: Descriptors of a rank: its socket, and the pipes of stdout and stderr.
_FILES = 3


class ForkedRank:
    """The process, with as much of `subprocess.Popen` as a supervisor uses."""

    def __init__(self, pid: int, stdout: IO[bytes], stderr: IO[bytes], channel: wire.Channel) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._channel, self._waiting = channel, threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, or minus a signal's number. Raises `subprocess.TimeoutExpired` after so many seconds.

        The process is a zombie then, so that no other has its number, until `release`.
        """
        if not self._waiting.acquire(timeout=-1 if timeout is None else timeout):
            raise subprocess.TimeoutExpired("rank", timeout or 0.0)
        try:
            if self.returncode is None:
                self._channel.settimeout(timeout)
                self.returncode = int(messages.parse(self._channel.recv()[1])["status"])
        except socket.timeout:
            raise subprocess.TimeoutExpired("rank", timeout or 0.0) from None
        except (wire.ConnectionLost, wire.ProtocolError, OSError):
            self.returncode = -signal.SIGKILL  # it dies with the process that has forked it
        finally:
            self._waiting.release()
        return self.returncode

    def release(self) -> None:
        """Free the pid: nobody signals it any more. Raises `wire.ConnectionLost` if the forking process is gone."""
        self._channel.settimeout(None)
        self._channel.send_json(messages.FORK_ENDED, {})


def ask(channel: wire.Channel) -> tuple[ForkedRank, socket.socket]:
    """(a rank forked by the process at the other end, this side's socket of its channel). CLAIM was sent before."""
    with contextlib.ExitStack() as local_files, contextlib.ExitStack() as remote_files:
        sockets = socket.socketpair()
        local_socket = local_files.enter_context(sockets[0])
        files, readers = [remote_files.enter_context(sockets[1]).fileno()], []
        for _ in range(2):
            reader, writer = os.pipe()
            remote_files.callback(os.close, writer)
            readers.append(local_files.enter_context(open(reader, "rb", buffering=0)))
            files.append(writer)
        channel.socket.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        pid = int(messages.parse(channel.recv()[1])["pid"])
        local_files.pop_all()
    return ForkedRank(pid, readers[0], readers[1], channel), local_socket


def fork(channel: wire.Channel) -> wire.Channel | None:
    """The other side of `ask`. Returns in the rank its channel, and in this process None once the rank has ended."""
    channel_descriptor, stdout, stderr = files = _receive_files(channel.socket)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)  # what it starts is killed with it
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        os.set_inheritable(channel_descriptor, False)
        return wire.Channel(socket.socket(fileno=channel_descriptor), wire.Identity("supervisor", -1, 0))
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # also here: one of the two is the first
    for descriptor in files:
        os.close(descriptor)
    channel.send_json(messages.CLAIM, {"pid": pid})
    exit_info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert exit_info is not None, "without WNOHANG it waits"
    sign = 1 if exit_info.si_code == os.CLD_EXITED else -1
    channel.send_json(messages.FORK_ENDED, {"status": sign * exit_info.si_status})
    channel.recv()  # ForkedRank.release
    os.waitpid(pid, 0)
    return None


def _receive_files(sock: socket.socket) -> list[int]:
    files = array.array("i")
    _, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(_FILES * files.itemsize))
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    if len(files) != _FILES:
        raise wire.ConnectionLost("the supervisor has gone")
    return list(files)
