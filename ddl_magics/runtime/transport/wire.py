"""Frames between the processes of a run: all connections are made here, and authenticated by handshake.py.

A frame is a kind and a length, then the payload. The length is checked before memory is allocated. Where the run has a
certificate, connections are encrypted by tls.py, below the handshake; docs/security.md says what follows where not.
"""

from __future__ import annotations

import collections
import errno
import json
import socket
import ssl
import struct
import threading
import time
from typing import Callable, Tuple, Union

from . import link_watch, tls
from .credentials import Credentials
from .handshake import HANDSHAKE_SECONDS, MAGIC, ConnectionLost, Identity, PeerRefused, describe, initiate, respond
from .sockets import close_after_fork, configure, drain, drop_sent, error_text, hang_up

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "Address",
    "Channel",
    "ConnectionLost",
    "Credentials",
    "Identity",
    "Listener",
    "PeerRefused",
    "ProtocolError",
    "connect",
    "describe",
]

DEFAULT_LIMIT_BYTES = 64 << 20
HANDSHAKES_AT_ONCE = 32
BACKLOG = 128
RETRY_SECONDS = 0.1
LINGER_SECONDS = 1.0

_HEADER = struct.Struct("!BQ")  # kind, length of the payload
_BUFFERS_AT_ONCE = 64  # below IOV_MAX of every system

Address = Tuple[str, int]
Buffer = Union[bytes, bytearray, memoryview]  # of an array: `array.data`


class ProtocolError(Exception):
    """The peer sent a frame that the protocol does not allow here; the connection is closed."""


class Channel:
    """An authenticated connection. Any threads may call `send` and `recv`; `close` interrupts both.

    Attributes:
        peer: the identity that the other side proved.
        address: of the other side.
        local_host: this side's host on the connection, by which peers on the same network can reach it.
        encrypted: whether the connection is encrypted.
    """

    def __init__(self, sock: socket.socket, peer: Identity) -> None:
        self.peer = peer
        self.socket = close_after_fork(sock)  # public: the collectives read and write it themselves
        has_address = sock.family != getattr(socket, "AF_UNIX", None)  # the ends of a socketpair have none
        self.address: Address = sock.getpeername()[:2] if has_address else ("", 0)
        self.local_host: str = sock.getsockname()[0] if has_address else ""
        self.encrypted = isinstance(sock, tls.TlsSocket)
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._closed = False
        self._unanswered = False

    def send(self, kind: int, *buffers: Buffer) -> None:
        """Sends one frame. Its payload is the concatenation of `buffers`, which are not copied.

        Args:
            kind: 0 to 255.
            buffers: contiguous.

        Raises:
            ConnectionLost: also if a timeout is set and passes while the peer does not read.
        """
        views = collections.deque(memoryview(b).cast("B") for b in buffers if memoryview(b).nbytes)
        views.appendleft(memoryview(_HEADER.pack(kind, sum(len(view) for view in views))))
        with self._sending:
            try:
                while views:
                    count = self.socket.sendmsg([views[i] for i in range(min(len(views), _BUFFERS_AT_ONCE))])
                    drop_sent(views, count)
            except OSError as error:  # half a frame may have been sent, so nothing can follow it
                hang_up(self.socket)
                raise self._connection_lost(error_text(error)) from error

    def send_json(self, kind: int, value: object) -> None:
        """Sends `value` as one frame of JSON. "?" replaces surrogates, which Python's names of non-UTF-8 files have."""
        self.send(kind, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))

    def recv(self, limit: int = DEFAULT_LIMIT_BYTES) -> tuple[int, bytearray]:
        """The next frame's kind and payload.

        Raises:
            ConnectionLost: the connection has ended.
            ProtocolError: the payload has more than `limit` bytes.
            socket.timeout: a timeout is set and passed before a frame began. The channel can still be used.
        """
        with self._receiving:
            kind, length = self._read_header()
            if length > limit:
                raise self._protocol_error("a frame of %d bytes, at most %d were expected" % (length, limit))
            payload = bytearray(length)
            self._fill(memoryview(payload))
        return kind, payload

    def recv_into(self, buffer: Buffer) -> int:
        """Fills `buffer` (writable, contiguous) with the payload of the next frame, and returns the frame's kind.

        Raises:
            ProtocolError: the payload and `buffer` differ in length. Otherwise as `recv`.
        """
        view = memoryview(buffer).cast("B") if memoryview(buffer).nbytes else memoryview(b"")
        with self._receiving:
            kind, length = self._read_header()
            if length != len(view):
                raise self._protocol_error("a frame of %d bytes where %d were expected" % (length, len(view)))
            self._fill(view)
        return kind

    def settimeout(self, seconds: float | None) -> None:
        """Bounds each wait for the peer. The default, None, waits until the connection ends."""
        self.socket.settimeout(seconds)

    def close(self, linger: float = LINGER_SECONDS) -> None:
        """Closes the connection, after at most `linger` seconds in which sent data may arrive.

        Threads that wait in `send` or `recv` get ConnectionLost.
        """
        drain(self.socket, linger)
        self._closed = True
        hang_up(self.socket)  # wakes threads that wait in send and recv, so that they release the locks
        with self._sending, self._receiving:
            self.socket.close()

    def _read_header(self) -> tuple[int, int]:
        header = bytearray(_HEADER.size)
        self._fill(memoryview(header), between_frames=True)
        kind, length = _HEADER.unpack(header)
        return kind, length

    def _fill(self, view: memoryview, between_frames: bool = False) -> None:
        while view:
            try:
                count = self.socket.recv_into(view)
            except OSError as error:
                # Python's own timeout has no errno. The system's, after unanswered probes, has one: the peer is lost.
                if between_frames and isinstance(error, socket.timeout) and error.errno is None:
                    raise
                self._unanswered = error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH)
                hang_up(self.socket)
                raise self._connection_lost(error_text(error)) from error
            if not count:
                raise self._connection_lost("connection closed")
            view, between_frames = view[count:], False

    @property
    def is_cut(self) -> bool:
        """Whether the connection has ended because the peer's host did not answer."""
        return self._unanswered or link_watch.was_cut(self.socket)

    def _connection_lost(self, reason: str) -> ConnectionLost:
        if self.is_cut:
            reason = "its host does not answer"
        return ConnectionLost("%s: %s" % (describe(self.peer), "closed by this side" if self._closed else reason))

    def _protocol_error(self, received: str) -> ProtocolError:
        hang_up(self.socket)
        return ProtocolError("%s sent %s" % (describe(self.peer), received))


class Listener:
    """Listens on a free port of `host`, and passes every authenticated peer to `accept` as a `Channel`.

    Several threads may call `admit` and `accept` at once.

    Args:
        admit: called with the identity of a peer that has proved to know the secret. Returns None to accept the peer,
            or the reason to refuse it, in one line.
        accept: called with the channel, in a thread of its own, for as long as it likes.
        plain: whether a peer may leave its connection unencrypted although the run has a certificate.

    Attributes:
        refused: the number of connections that were not accepted.
    """

    def __init__(
        self,
        host: str,
        credentials: Credentials,
        identity: Identity,
        admit: Callable[[Identity], str | None],
        accept: Callable[[Channel], None],
        plain: bool = False,
    ) -> None:
        self._credentials, self._identity, self._plain = credentials, identity, plain
        self._admit, self._accept = admit, accept
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self._socket = close_after_fork(socket.socket(family, kind, protocol))
        self._socket.bind(address)
        self._socket.listen(BACKLOG)
        self.address: Address = (host, self._socket.getsockname()[1])
        self.refused = 0
        self._lock = threading.Lock()
        self._unauthenticated: collections.OrderedDict[socket.socket, None] = collections.OrderedDict()
        self._free_handshakes = threading.Semaphore(HANDSHAKES_AT_ONCE)
        self._closed = threading.Event()
        threading.Thread(target=self._serve, name="ddl listen", daemon=True).start()

    def close(self) -> None:
        """Stops listening. Channels that were passed to `accept` stay open."""
        with self._lock:
            self._closed.set()
            for sock in self._unauthenticated:
                hang_up(sock)
        hang_up(self._socket)  # wakes the thread in accept()
        self._socket.close()

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                sock, _ = self._socket.accept()
            except OSError:
                time.sleep(0.05)  # closed, or the process has no free file descriptor at the moment
                continue
            if not self._free_handshakes.acquire(blocking=False):
                # A peer that knows the secret needs milliseconds, so the oldest of many handshakes is a stranger's.
                with self._lock:
                    for oldest in self._unauthenticated:
                        hang_up(oldest)
                        break
                self._free_handshakes.acquire()
            with self._lock:
                self._unauthenticated[close_after_fork(sock)] = None
                if self._closed.is_set():
                    hang_up(sock)
            try:
                threading.Thread(target=self._authenticate, args=(sock,), name="ddl handshake", daemon=True).start()
            except RuntimeError:  # the process cannot start a thread at the moment: the peer will try again
                with self._lock:
                    self._unauthenticated.pop(sock, None)
                sock.close()
                self._free_handshakes.release()

    def _authenticate(self, sock: socket.socket) -> None:
        channel, secured = None, sock
        try:
            secured = close_after_fork(self._secured(sock))
            peer = respond(secured, self._credentials, self._identity, lambda peer: self._check(sock, peer))
            configure(secured)
            link_watch.watch(secured, self._identity.role)
            channel = Channel(secured, peer)
        except (OSError, ConnectionLost, PeerRefused):
            secured.close()
            sock.close()
        finally:
            with self._lock:
                self._unauthenticated.pop(sock, None)
                self.refused += channel is None
            self._free_handshakes.release()
        if channel is None:
            return
        try:
            self._accept(channel)
        except BaseException:
            channel.close(0)
            raise

    def _secured(self, sock: socket.socket) -> socket.socket:
        """`sock`, encrypted if the run has a certificate and the peer does not choose otherwise."""
        certificate, deadline = self._credentials.certificate, time.monotonic() + HANDSHAKE_SECONDS
        if certificate is None:
            return sock
        if self._plain:
            sock.settimeout(HANDSHAKE_SECONDS)
            if sock.recv(1, socket.MSG_PEEK) == MAGIC[:1]:
                return sock
        return tls.encrypt(sock, certificate, True, deadline)

    def _check(self, sock: socket.socket, peer: Identity) -> str | None:
        with self._lock:
            self._unauthenticated.pop(sock, None)  # it knows the secret, so a flood no longer closes it
        return self._admit(peer)


def connect(
    address: Address,
    credentials: Credentials,
    identity: Identity,
    expected: Identity,
    timeout: float,
    plain: bool = False,
) -> Channel:
    """Connects to the `Listener` at `address`. Retries while nobody listens there or the listener is overloaded.

    Args:
        identity: of this side.
        expected: the identity that the listener must prove.
        timeout: of the retries, in seconds.
        plain: without encryption.

    Raises:
        ConnectionLost: no connection within `timeout`.
        PeerRefused: one side does not know the secret or refuses the other. Raised at once.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return _connect_once(address, credentials, identity, expected, deadline, plain)
        except ssl.SSLError as error:
            message = "%s refused the connection: %s" % (describe(expected), error.reason or error)
            raise PeerRefused(message) from None
        except (OSError, ConnectionLost) as error:
            if time.monotonic() + RETRY_SECONDS >= deadline:
                peer = "%s at %s:%d" % (describe(expected), address[0], address[1])
                message = "no connection to %s within %g s: %s" % (peer, timeout, error_text(error))
                raise ConnectionLost(message) from error
        time.sleep(RETRY_SECONDS)


def _connect_once(
    address: Address, credentials: Credentials, identity: Identity, expected: Identity, deadline: float, plain: bool
) -> Channel:
    certificate = None if plain else credentials.certificate
    sock: socket.socket = socket.create_connection(address, max(deadline - time.monotonic(), 0.001))
    try:
        close_after_fork(sock)
        if sock.getsockname() == sock.getpeername():  # TCP can connect a free port of this host to itself
            raise ConnectionLost("nobody listens")
        if certificate is not None:
            bound = min(deadline, time.monotonic() + HANDSHAKE_SECONDS)
            sock = close_after_fork(tls.encrypt(sock, certificate, False, bound))
        initiate(sock, credentials, identity, expected, deadline)
        configure(sock)
        link_watch.watch(sock, identity.role)
        return Channel(sock, expected)
    except BaseException:
        sock.close()
        raise
