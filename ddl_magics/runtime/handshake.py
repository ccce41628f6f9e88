"""Authentication: how two processes of a run prove to each other who they are, before anything else is read.

    connecting side                          listening side
    hello: magic, version, who, nonce  -->
                                       <--   hello: magic, version, who, nonce
    HMAC over run and both hellos      -->
                                       <--   HMAC over the same and the verdict, and the verdict

Everything has a fixed size and all of it one bound in time. The nonces are fresh on both sides, so that a recorded
handshake proves nothing; the two directions are labelled, so that a proof cannot be sent back. The connecting side
proves first: a stranger gets no HMAC to work on.
"""

import hashlib
import hmac
import os
import socket
import struct
import time
from typing import Callable, NamedTuple, Optional

MAGIC = b"ddlM"
VERSION = 1
ROLES = ("driver", "supervisor", "rank", "server")
HANDSHAKE_SECONDS = 5.0

HELLO = struct.Struct("!4sBBiI32s")  # magic, version, role, rank, attempt, nonce
PROOF_BYTES = 32
VERDICT_BYTES = 200  # why a peer that knows the secret is not let in; empty: it is
_NO_PROOF = bytes(PROOF_BYTES)


class Identity(NamedTuple):
    """Who a process says it is: a role of `ROLES`, its rank (-1 where there is none), its attempt (from 0)."""

    role: str
    rank: int
    attempt: int


class ConnectionLost(Exception):
    """The connection could not be made, or is gone."""


class Refused(Exception):
    """The peer does not know the secret, is not who was expected, or does not want us; the message says which."""


def describe(identity: Identity) -> str:
    """How a peer is called in messages: "the driver", "rank 3", "the supervisor of rank 3"."""
    if identity.role == "rank":
        return "rank %d" % identity.rank
    if identity.role == "supervisor":
        return "the supervisor of rank %d" % identity.rank
    return "the parameter server" if identity.role == "server" else "the " + identity.role


def greet(
    sock: socket.socket, secret: bytes, run: str, me: Identity, admit: Callable[[Identity], Optional[str]]
) -> Identity:
    """The listening side. Returns who the peer proved to be; raises Refused, ConnectionLost or OSError."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    theirs = _read(sock, HELLO.size, deadline)
    peer = _parse_hello(theirs)
    ours = hello(me)
    _write(sock, ours, deadline)
    proof = _read(sock, PROOF_BYTES, deadline)
    if not hmac.compare_digest(proof, _proof(secret, run, b"connect", theirs, ours)):
        _write(sock, _NO_PROOF + bytes(VERDICT_BYTES), deadline)
        raise Refused("a peer does not know the secret")
    reason = admit(peer)
    verdict = (reason or "").encode()[:VERDICT_BYTES].ljust(VERDICT_BYTES, b"\0")
    _write(sock, _proof(secret, run, b"listen", theirs, ours, verdict) + verdict, deadline)
    if reason:
        raise Refused(reason)
    return peer


def introduce(sock: socket.socket, secret: bytes, run: str, me: Identity, expect: Identity, deadline: float) -> None:
    """The connecting side; raises Refused, ConnectionLost or OSError. `deadline` is of time.monotonic()."""
    deadline = min(deadline, time.monotonic() + HANDSHAKE_SECONDS)
    if sock.getsockname() == sock.getpeername():  # a free port of this host can be met by itself
        raise ConnectionLost("nobody listens")
    ours = hello(me)
    _write(sock, ours, deadline)
    theirs = _read(sock, HELLO.size, deadline)
    peer = _parse_hello(theirs)
    _write(sock, _proof(secret, run, b"connect", ours, theirs), deadline)
    answer = _read(sock, PROOF_BYTES + VERDICT_BYTES, deadline)
    proof, verdict = answer[:PROOF_BYTES], answer[PROOF_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, run, b"listen", ours, theirs, verdict)):
        raise Refused("%s does not share this run's secret" % describe(expect))
    reason = verdict.rstrip(b"\0").decode(errors="replace")
    if reason:
        raise Refused("%s refused the connection: %s" % (describe(expect), reason))
    if peer != expect:
        raise Refused("expected %r, met %r" % (expect, peer))


def hello(me: Identity) -> bytes:
    """What a peer says first: who it is, and a fresh nonce."""
    return HELLO.pack(MAGIC, VERSION, ROLES.index(me.role), me.rank, me.attempt, os.urandom(32))


def _parse_hello(hello: bytes) -> Identity:
    magic, version, role, rank, attempt, _ = HELLO.unpack(hello)
    if magic != MAGIC or role >= len(ROLES):
        raise Refused("the peer speaks another protocol")
    if version != VERSION:
        raise Refused("the peer speaks version %d of the protocol, this is version %d" % (version, VERSION))
    return Identity(ROLES[role], rank, attempt)


def _proof(secret: bytes, run: str, label: bytes, connecting: bytes, listening: bytes, verdict: bytes = b"") -> bytes:
    # Every part has a fixed length (the run through its hash), so that no two messages read the same.
    message = label.ljust(8, b"\0") + hashlib.sha256(run.encode()).digest() + connecting + listening + verdict
    return hmac.new(secret, message, hashlib.sha256).digest()


def _read(sock: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))  # one bound for all of it: dripping buys no time
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionLost("closed during the handshake")
        data += piece
        if time.monotonic() >= deadline:
            raise ConnectionLost("the handshake took too long")
    return bytes(data)


def _write(sock: socket.socket, data: bytes, deadline: float) -> None:
    sock.settimeout(max(deadline - time.monotonic(), 0.001))
    sock.sendall(data)
