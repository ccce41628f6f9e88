"""What all sockets of a run need: options, waking of threads that wait, draining before a close, forks."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import weakref
from collections import deque

try:
    import fcntl
    import termios

    _UNSENT: int | None = termios.TIOCOUTQ
except ImportError:  # not POSIX: connections close without waiting for unsent data
    _UNSENT = None

#: A host that vanishes is noticed when a connection was idle for so long and then so many probes got no answer.
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_PROBE_SECONDS, KEEPALIVE_PROBES = 10, 5, 4
#: Of an error: the peer's system has taken the bytes, or nothing has come back.
NO_ANSWER = "no answer in time"

_CLOSED_AFTER_FORK: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def close_after_fork(sock: socket.socket) -> socket.socket:
    """Registers a socket to be closed in forked children, and returns it.

    A child (such as a data loader of the cell) that held the connection open would hide its parent's death from peers.
    """
    _CLOSED_AFTER_FORK.add(sock)
    return sock


def _close_in_child() -> None:
    for sock in list(_CLOSED_AFTER_FORK):
        sock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def configure(sock: socket.socket) -> None:
    """Sets no timeout, no delay for small frames, and keepalive probes."""
    # Buffer sizes stay as they are: setting one switches off the kernel's own tuning, which does better.
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_PROBE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


def hang_up(sock: socket.socket) -> None:
    """Shuts down both directions, which wakes every thread that waits on the socket, on both sides."""
    with contextlib.suppress(OSError):  # never connected, or closed already
        sock.shutdown(socket.SHUT_RDWR)


def drain(sock: socket.socket, seconds: float) -> None:
    """Waits until the peer's system has acknowledged all sent data, for at most `seconds`.

    Closing a socket that holds unread data discards unsent data: without this, the end of a stream could get lost.
    """
    if _UNSENT is None:
        return
    deadline = time.monotonic() + seconds
    pending = bytearray(4)
    poll = select.poll()
    with contextlib.suppress(OSError, ValueError):  # closed already
        poll.register(sock, 0)  # reports a closed connection, on which nothing will be acknowledged
        while time.monotonic() < deadline and not poll.poll(0):
            fcntl.ioctl(sock.fileno(), _UNSENT, pending)
            if not any(pending):
                return
            time.sleep(0.001)


def drop_sent(views: deque[memoryview], count: int) -> None:
    """Removes the first `count` bytes, which were sent, from a queue of views."""
    while count:
        view = views.popleft()
        if count < len(view):
            views.appendleft(view[count:])
            return
        count -= len(view)


def error_text(error: Exception) -> str:
    """An error, of a socket mostly, in a few words for a message."""
    if isinstance(error, socket.timeout):
        return NO_ANSWER
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
