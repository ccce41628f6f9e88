"""What every socket of a run gets and how it ends: waking, settling, closing, on this side of a fork too."""

import os
import select
import socket
import time
import weakref
from typing import Deque, Optional

try:
    import fcntl
    import termios

    _UNSENT: Optional[int] = termios.TIOCOUTQ
except ImportError:  # no POSIX: connections then close without waiting for what is still on its way
    _UNSENT = None

#: A host that vanished without a word is noticed after this long idle, plus three unanswered probes.
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_PROBE_SECONDS, KEEPALIVE_PROBES = 10, 5, 3

_SOCKETS: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


def ours(sock: socket.socket) -> socket.socket:
    """Marks a socket as one of this process alone.

    A forked child (a data loader of the user's) must not hold it open: its parent could die and the peers would never
    hear of it.
    """
    _SOCKETS.add(sock)
    return sock


def _forget_sockets() -> None:
    for sock in list(_SOCKETS):
        sock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_sockets)


def tune(sock: socket.socket) -> None:
    """Small frames leave at once, waits have no bound, and a host that is gone is noticed."""
    # Buffer sizes are left alone: setting one switches off the kernel's own tuning, which does better.
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_PROBE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


def hang_up(sock: socket.socket) -> None:
    """Ends both directions at once: whoever waits on `sock`, here or there, wakes."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # never connected, or over already


def settle(sock: socket.socket, seconds: float) -> None:
    """Waits at most `seconds` until the peer's system has all that was sent.

    Without it the end of a stream can get lost: closing a socket that holds unread data discards what is unsent.
    """
    if _UNSENT is None:
        return
    deadline = time.monotonic() + seconds
    pending = bytearray(4)
    poll = select.poll()
    try:
        poll.register(sock, 0)  # reports what is over, as nothing will be acknowledged then
        while time.monotonic() < deadline and not poll.poll(0):
            fcntl.ioctl(sock.fileno(), _UNSENT, pending)
            if not any(pending):
                return
            time.sleep(0.001)
    except (OSError, ValueError):
        pass  # closed already


def drop(views: Deque[memoryview], count: int) -> None:
    """Takes the first `count` bytes, those that were sent, off a queue of views."""
    while count:
        first = views.popleft()
        if count < len(first):
            views.appendleft(first[count:])
            return
        count -= len(first)


def words(error: Exception) -> str:
    """What went wrong with a socket, in a few words for a message."""
    return "no answer in time" if isinstance(error, socket.timeout) else getattr(error, "strerror", None) or str(error)
