"""Frames: every connection between the processes of a run is made here, after the handshake of handshake.py.

A frame is a kind and a length, then the payload. Lengths are checked before memory is taken. Frames are neither
encrypted nor signed: docs/security.md says what that leaves to the network.
"""

import collections
import json
import socket
import struct
import threading
import time
from typing import Any, Callable, Optional, Tuple

from .handshake import ConnectionLost, Identity, Refused, describe, greet, introduce
from .sockets import drop, hang_up, ours, settle, tune, words

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "Address",
    "Channel",
    "ConnectionLost",
    "Identity",
    "Listener",
    "ProtocolError",
    "Refused",
    "connect",
    "describe",
]

DEFAULT_LIMIT_BYTES = 64 << 20
HANDSHAKES_AT_ONCE = 32
BACKLOG = 128
RETRY_SECONDS = 0.1
LINGER_SECONDS = 1.0

_HEADER = struct.Struct("!BQ")  # kind, length of the payload
_BUFFERS_AT_ONCE = 64  # well below every system's IOV_MAX

Address = Tuple[str, int]


class ProtocolError(Exception):
    """The peer sent what this protocol does not know, or more than was allowed; the connection is closed."""


class Channel:
    """An authenticated connection. `send` and `recv` may be called from any threads, `close` breaks both.

    `peer` is who the other side proved to be, `address` its address, `local_host` our own address on this connection:
    one that peers on the same network can reach.
    """

    def __init__(self, sock: socket.socket, peer: Identity) -> None:
        self.peer = peer
        self.socket = ours(sock)  # for those who do their own input and output once the peer is known
        named = sock.family != getattr(socket, "AF_UNIX", None)  # the two ends of a socketpair have no address
        self.address: Address = sock.getpeername()[:2] if named else ("", 0)
        self.local_host: str = sock.getsockname()[0] if named else ""
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._closed = False

    def send(self, kind: int, *buffers: Any) -> None:
        """Sends one frame; `buffers` are bytes or contiguous arrays, laid one after the other, not copied.

        Raises ConnectionLost, also where a timeout passes while the peer does not read.
        """
        views = collections.deque(memoryview(b).cast("B") for b in buffers if memoryview(b).nbytes)
        views.appendleft(memoryview(_HEADER.pack(kind, sum(len(view) for view in views))))
        with self._sending:
            try:
                while views:
                    drop(views, self.socket.sendmsg([views[i] for i in range(min(len(views), _BUFFERS_AT_ONCE))]))
            except OSError as error:  # a frame may be half sent: nothing more can follow it
                hang_up(self.socket)
                raise self._lost(words(error)) from error

    def send_json(self, kind: int, value: Any) -> None:
        """Sends `value` as one frame of JSON."""
        self.send(kind, json.dumps(value, separators=(",", ":")).encode())

    def recv(self, limit: int = DEFAULT_LIMIT_BYTES) -> Tuple[int, bytearray]:
        """The next frame's kind and payload.

        Raises ConnectionLost at the end, ProtocolError for more than `limit` bytes (before memory is taken), and
        `socket.timeout` where a timeout is set and passed before a frame began: the channel can still be used then.
        """
        with self._receiving:
            kind, length = self._header()
            if length > limit:
                raise self._broken("a frame of %d bytes, at most %d were expected" % (length, limit))
            payload = bytearray(length)
            self._fill(memoryview(payload))
        return kind, payload

    def recv_into(self, view: Any) -> int:
        """Fills `view`, a writable contiguous buffer, with the payload of the next frame; returns the frame's kind.

        Raises as `recv` does, and ProtocolError where the payload has not exactly the length of `view`.
        """
        flat = memoryview(view).cast("B") if memoryview(view).nbytes else memoryview(b"")
        with self._receiving:
            kind, length = self._header()
            if length != len(flat):
                raise self._broken("a frame of %d bytes where %d were expected" % (length, len(flat)))
            self._fill(flat)
        return kind

    def settimeout(self, seconds: Optional[float]) -> None:
        """Bounds each wait for the peer; None, the default, waits for as long as the connection lives."""
        self.socket.settimeout(seconds)

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self, linger: float = LINGER_SECONDS) -> None:
        """Closes, after at most `linger` seconds for what is on its way; waiting threads get ConnectionLost."""
        settle(self.socket, linger)
        self._closed = True
        hang_up(self.socket)  # wakes threads that wait in send and recv, so that the locks come free
        with self._sending, self._receiving:
            self.socket.close()

    def _header(self) -> Tuple[int, int]:
        header = bytearray(_HEADER.size)
        self._fill(memoryview(header), fresh=True)
        return _HEADER.unpack(header)

    def _fill(self, view: memoryview, fresh: bool = False) -> None:
        while view:
            try:
                count = self.socket.recv_into(view)
            except OSError as error:
                # Python's own timeout has no errno; the system's, after unanswered probes, is a lost peer
                if fresh and isinstance(error, socket.timeout) and error.errno is None:
                    raise
                hang_up(self.socket)
                raise self._lost(words(error)) from error
            if not count:
                raise self._lost("connection closed")
            view, fresh = view[count:], False

    def _lost(self, why: str) -> ConnectionLost:
        return ConnectionLost("%s: %s" % (describe(self.peer), "closed by this side" if self._closed else why))

    def _broken(self, what: str) -> ProtocolError:
        hang_up(self.socket)
        return ProtocolError("%s sent %s" % (describe(self.peer), what))


class Listener:
    """Listens on a free port of `host` and hands every authenticated peer over as a `Channel`.

    `admit(identity)` is asked once a peer has proved that it knows the secret, and returns None to let it in or, in
    one line, why not. `accept(channel)` runs in a thread of its own, which it may keep for as long as it likes. Both
    may be called from several threads at once. `refused` counts the connections that were not let in.
    """

    def __init__(
        self,
        host: str,
        secret: bytes,
        run: str,
        me: Identity,
        admit: Callable[[Identity], Optional[str]],
        accept: Callable[[Channel], None],
    ) -> None:
        self._secret, self._run, self._me = secret, run, me
        self._admit, self._accept = admit, accept
        family, kind, protocol, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self._socket = ours(socket.socket(family, kind, protocol))
        self._socket.bind(where)
        self._socket.listen(BACKLOG)
        self.address: Address = (host, self._socket.getsockname()[1])
        self.refused = 0
        self._lock = threading.Lock()
        self._strangers: "collections.OrderedDict[socket.socket, None]" = collections.OrderedDict()
        self._free = threading.Semaphore(HANDSHAKES_AT_ONCE)
        self._closed = threading.Event()
        threading.Thread(target=self._serve, name="ddl listen", daemon=True).start()

    def close(self) -> None:
        """Stops listening; channels that were handed over live on."""
        with self._lock:
            self._closed.set()
            for stranger in self._strangers:
                hang_up(stranger)
        hang_up(self._socket)  # wakes the thread in accept()
        self._socket.close()

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                sock, _ = self._socket.accept()
            except OSError:
                time.sleep(0.05)  # closed, or out of file descriptors for the moment
                continue
            if not self._free.acquire(blocking=False):
                # A peer that knows the secret is done within milliseconds: the oldest of many is no such peer.
                with self._lock:
                    for oldest in self._strangers:
                        hang_up(oldest)
                        break
                self._free.acquire()
            with self._lock:
                self._strangers[ours(sock)] = None
                if self._closed.is_set():
                    hang_up(sock)
            try:
                threading.Thread(target=self._greet, args=(sock,), name="ddl handshake", daemon=True).start()
            except RuntimeError:  # no more threads for the moment: the peer will try again
                with self._lock:
                    self._strangers.pop(sock, None)
                sock.close()
                self._free.release()

    def _greet(self, sock: socket.socket) -> None:
        channel = None
        try:
            peer = greet(sock, self._secret, self._run, self._me, lambda peer: self._judge(sock, peer))
            tune(sock)
            channel = Channel(sock, peer)
        except (OSError, ConnectionLost, Refused):
            sock.close()
        finally:
            with self._lock:
                self._strangers.pop(sock, None)
                self.refused += channel is None
            self._free.release()
        if channel is None:
            return
        try:
            self._accept(channel)
        except BaseException:
            channel.close(0)
            raise

    def _judge(self, sock: socket.socket, peer: Identity) -> Optional[str]:
        with self._lock:
            self._strangers.pop(sock, None)  # it knows the secret: no crowd pushes it out any more
        return self._admit(peer)


def connect(address: Address, secret: bytes, run: str, me: Identity, expect: Identity, timeout: float) -> Channel:
    """Connects to a `Listener` at `address` that must prove to be `expect`.

    Tries again until `timeout` seconds have passed where nobody listens yet or the listener is overrun. Raises
    ConnectionLost then, and Refused at once where either side does not know the secret or does not want the other.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        try:
            sock = ours(socket.create_connection(address, max(left, 0.001)))
            try:
                introduce(sock, secret, run, me, expect, deadline)
                tune(sock)
                return Channel(sock, expect)
            except BaseException:
                sock.close()
                raise
        except (OSError, ConnectionLost) as error:
            if time.monotonic() + RETRY_SECONDS >= deadline:
                where = "%s at %s:%d" % (describe(expect), address[0], address[1])
                raise ConnectionLost("no connection to %s within %g s: %s" % (where, timeout, words(error))) from error
        time.sleep(RETRY_SECONDS)
