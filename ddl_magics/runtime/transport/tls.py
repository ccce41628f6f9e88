"""Encrypted connections: TLS 1.3 in which both sides show the certificate of the run, the only one that they trust.

ssl.SSLSocket cannot do what the collectives do with their sockets: it has no `sendmsg`, and hides received bytes from
`poll`. So the bytes go through ssl.SSLObject, which leaves sending and receiving to its caller.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import ssl
import tempfile
import threading
import time
from typing import Any, Iterable, Iterator, NamedTuple

from .handshake import ConnectionLost, PeerRefused

_BEGIN_CERTIFICATE = "-----BEGIN CERTIFICATE-----"

_RECEIVED_AT_ONCE = 256 << 10
_SENT_AT_ONCE = 128 << 10
_HANDSHAKE_BYTES = 16 << 10

_NOT_OURS = "the peer does not have the certificate of this run (%s)"


class TlsSocket(socket.socket):
    """A connected socket whose bytes are encrypted, in blocking and non-blocking mode.

    One thread may send while another receives. What `recv` and `recv_into` can give without the system, they give at
    once: after a BlockingIOError, `poll` tells when there is more. `sendmsg` may keep bytes that the system does not
    take yet: `unsent`.
    """

    def __init__(self, sock: socket.socket, tls: _Tls) -> None:
        """Takes the place of `sock`, on which the handshake of `tls` is done."""
        timeout = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.settimeout(timeout)
        self._tls = tls
        self._lock = threading.Lock()  # OpenSSL reads and writes one after the other
        self._received = bytearray(_RECEIVED_AT_ONCE)
        self._encrypted = memoryview(b"")

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        view = view[:nbytes] if nbytes else view
        while view:
            count = self._decrypt(view)
            if count is not None:
                return count
            received = super().recv_into(self._received)
            if not received:
                break
            with self._lock:
                self._tls.arriving.write(memoryview(self._received)[:received])
        return 0

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        data = bytearray(bufsize)
        return bytes(data[: self.recv_into(data)])

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:
        """The number of bytes that it took. BlockingIOError where it took none."""
        self._send_encrypted()
        count = 0
        with self._lock:
            for buffer in buffers:
                view = memoryview(buffer).cast("B")[: _SENT_AT_ONCE - count]
                if view:
                    count += self._tls.session.write(view)
            self._encrypted = memoryview(self._tls.leaving.read())
        with contextlib.suppress(BlockingIOError):  # the next call sends the rest
            self._send_encrypted()
        return count

    def send(self, data: Any, flags: int = 0) -> int:
        return self.sendmsg([data])

    def sendall(self, data: Any, flags: int = 0) -> None:
        view = memoryview(data).cast("B")
        while view:
            view = view[self.sendmsg([view]) :]

    @property
    def unsent(self) -> bool:
        """Whether `sendmsg` has to be called again, with or without more to send."""
        return bool(self._encrypted)

    def _decrypt(self, view: memoryview) -> int | None:
        """How many bytes have been filled; 0: the peer has closed the connection; None: more has to arrive first."""
        filled = 0
        with self._lock:
            try:
                while filled < len(view):
                    count: Any = self._tls.session.read(len(view) - filled, view[filled:])
                    filled += count
            except ssl.SSLWantReadError:
                return filled or None
            except ssl.SSLZeroReturnError:
                pass
        return filled

    def _send_encrypted(self) -> None:
        while self._encrypted:
            self._encrypted = self._encrypted[super().send(self._encrypted) :]


def unsent(sock: socket.socket) -> bool:
    """Whether `sock` has taken bytes that it has not sent."""
    return isinstance(sock, TlsSocket) and sock.unsent


def encrypt(sock: socket.socket, certificate: str, listens: bool, deadline: float) -> TlsSocket:
    """Encrypts a connection. `sock` cannot be used any more.

    Args:
        certificate: `Credentials.certificate`.
        listens: whether this side accepted the connection.
        deadline: a time of time.monotonic().

    Raises:
        PeerRefused: the peer has another certificate.
        ConnectionLost, OSError: the connection has ended.
    """
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = _context(certificate, listens).wrap_bio(arriving, leaving, server_side=listens)
    tls = _Tls(session, arriving, leaving)
    finished = False
    while not finished:
        try:
            session.do_handshake()
            finished = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            _exchange(sock, tls, deadline, receive=False)  # tells the peer why
            raise PeerRefused(_NOT_OURS % (error.reason or error)) from None
        _exchange(sock, tls, deadline, receive=not finished)
    return TlsSocket(sock, tls)


class _Tls(NamedTuple):
    """A TLS session, and the bytes that have arrived for it and that are to leave."""

    session: ssl.SSLObject
    arriving: ssl.MemoryBIO
    leaving: ssl.MemoryBIO


def _exchange(sock: socket.socket, tls: _Tls, deadline: float, receive: bool) -> None:
    """Sends the pending bytes of the session, and receives some for it."""
    sock.settimeout(max(deadline - time.monotonic(), 0.001))
    sock.sendall(tls.leaving.read())
    if not receive:
        return
    if time.monotonic() >= deadline:
        raise ConnectionLost("the handshake took too long")
    received = sock.recv(_HANDSHAKE_BYTES)
    if not received:
        raise ConnectionLost("closed during the handshake")
    tls.arriving.write(received)


@functools.lru_cache(maxsize=4)
def _context(certificate: str, listens: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is the run's, and of no host
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate[certificate.index(_BEGIN_CERTIFICATE) :])
    with _in_memory(certificate) as path:
        context.load_cert_chain(path)
    if listens:
        context.num_tickets = 0  # nobody resumes a session
    return context


@contextlib.contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """The path of a file that holds `text`: ssl reads keys from files alone."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("ddl-certificate"), "w") as file:
            file.write(text)
            file.flush()
            yield "/proc/self/fd/%d" % file.fileno()
    else:
        with tempfile.NamedTemporaryFile("w", prefix="ddl-") as file:  # readable for this user alone
            file.write(text)
            file.flush()
            yield file.name
