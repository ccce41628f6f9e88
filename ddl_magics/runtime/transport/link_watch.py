"""Notices that a peer's host no longer answers while data to it are on their way: the host, or the link, has failed.

TCP repeats such data for a quarter of an hour, and sends no keepalive probes meanwhile. A short TCP_USER_TIMEOUT would
also end the connection to a live peer that does not read. Here one thread asks Linux for the acknowledgements of all
connections: the system of a live peer sends them, whatever its processes do.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
import weakref

from .handshake import Role
from .sockets import hang_up

#: A connection ends when sent data have had no acknowledgement for so long. Keepalive probes of idle connections
#: (sockets.py) take as long, so that the driver misses a host as early as the ranks on other hosts do.
SILENT_SECONDS = 30.0
#: A supervisor, which sends a sample every second, misses the driver earlier: a rank that is cut off has been ended
#: before the driver starts its successor.
SUPERVISOR_SILENT_SECONDS = 20.0
TICK_SECONDS = 1.0

# Linux' struct tcp_info: eight bytes, of which the fourth counts probes of a window that is closed; then numbers of 32
# bits: the fifth counts unacknowledged segments, the tenth is the milliseconds since data were last sent, and the
# thirteenth the milliseconds since the last acknowledgement.
_TCP_INFO = struct.Struct("=3xB4x16xI16xI8xI")


class _Link:
    """silent: seconds for which a connection has had unacknowledged data, and no acknowledgement came."""

    def __init__(self, limit: float) -> None:
        self.limit, self.silent = limit, 0.0

    def is_cut(self, sock: socket.socket, passed: float) -> bool:
        """To be called once in TICK_SECONDS. passed: seconds since the last call in which this process ran."""
        probes, unacknowledged, since_sent, since_acknowledged = _TCP_INFO.unpack_from(
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        )
        outstanding = probes or (unacknowledged and since_sent < since_acknowledged)
        self.silent = self.silent + passed if outstanding and since_acknowledged >= 1000 * passed else 0.0
        return self.silent >= self.limit


_lock = threading.Lock()
_links: weakref.WeakKeyDictionary[socket.socket, _Link] = weakref.WeakKeyDictionary()
_cut: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_running = False


def watch(sock: socket.socket, role: Role) -> None:
    """Hang up a TCP connection when its peer's host no longer answers. role: of this side."""
    global _running
    if not hasattr(socket, "TCP_INFO") or sock.family == getattr(socket, "AF_UNIX", None):
        return
    with _lock:
        _links[sock] = _Link(SUPERVISOR_SILENT_SECONDS if role == "supervisor" else SILENT_SECONDS)
        if not _running:
            threading.Thread(target=_run, name="ddl links", daemon=True).start()
            _running = True


def was_cut(sock: socket.socket) -> bool:
    """Whether a connection was hung up here."""
    return sock in _cut


def _run() -> None:
    """Look at all connections until there are none."""
    global _running
    previous_time = time.monotonic()
    while True:
        time.sleep(TICK_SECONDS)
        current_time = time.monotonic()
        passed, previous_time = min(current_time - previous_time, 2 * TICK_SECONDS), current_time
        with _lock:
            links = list(_links.items())
            if not links:
                _running = False
                return
        for sock, link in links:
            _look(sock, link, passed)
        del links, sock, link  # so that sockets that nobody holds go


def _look(sock: socket.socket, link: _Link, passed: float) -> None:
    try:
        cut = link.is_cut(sock, passed)
    except (OSError, struct.error):  # it is closed, or this system says less
        with _lock:
            _links.pop(sock, None)
        return
    if cut:
        with _lock:
            _cut.add(sock)
            _links.pop(sock, None)
        hang_up(sock)


def _begin_anew() -> None:
    """A forked child has neither the thread nor the connections."""
    global _lock, _running
    _lock, _running = threading.Lock(), False
    _links.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
