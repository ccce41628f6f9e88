"""Mutual authentication: two processes of a run prove that they know its secret, before anything else is read.

    initiator (connects)                     responder (listens)
    hello: magic, version, identity, nonce  -->
                                            <--  hello: magic, version, identity, nonce
    HMAC of run and both hellos             -->
                                            <--  HMAC of run, both hellos and refusal, then the refusal

Every message has a fixed size, and one deadline bounds the whole handshake. Both sides draw fresh nonces, so a recorded
handshake proves nothing when it is replayed. Each direction has its own label in the HMAC, so a proof cannot be sent
back. The initiator proves itself first, so a stranger gets no HMAC to work on.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import time
from typing import Callable, Literal, NamedTuple

from .credentials import Credentials

Role = Literal["driver", "supervisor", "rank", "server"]

MAGIC = b"ddlM"
VERSION = 1
ROLES: tuple[Role, ...] = ("driver", "supervisor", "rank", "server")  # a hello holds the index
HANDSHAKE_SECONDS = 5.0

HELLO = struct.Struct("!4sBBiI32s")  # magic, version, role, rank, attempt, nonce
PROOF_BYTES = 32
REFUSAL_BYTES = 200  # why the responder refuses an initiator that knows the secret; empty if it accepts
_NO_PROOF = bytes(PROOF_BYTES)

_NAMES = {
    "driver": "the driver",
    "supervisor": "the supervisor of rank %d",
    "rank": "rank %d",
    "server": "the parameter server",
}


class Identity(NamedTuple):
    """The identity that a process claims: its role, its rank (-1 if it has none) and its attempt (from 0)."""

    role: Role
    rank: int
    attempt: int


class ConnectionLost(Exception):
    """The connection could not be made, or has ended."""


class PeerRefused(Exception):
    """The peer does not know the secret, is not the expected one, or refuses this process; the message says which."""


def describe(identity: Identity) -> str:
    """The name of a peer in messages: "the driver", "rank 3", "the supervisor of rank 3"."""
    name = _NAMES[identity.role]
    return name % identity.rank if "%" in name else name


def respond(
    sock: socket.socket, credentials: Credentials, identity: Identity, admit: Callable[[Identity], str | None]
) -> Identity:
    """The listening side of a handshake.

    Args:
        identity: of this side.
        admit: called with the identity that the peer proved. Returns None to accept the peer, or the reason to refuse
            it.

    Returns:
        The identity that the peer proved.

    Raises:
        PeerRefused, ConnectionLost, OSError.
    """
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    peer_hello = _read(sock, HELLO.size, deadline)
    peer = _parse_hello(peer_hello)
    own_hello = hello(identity)
    _write(sock, own_hello, deadline)
    proof = _read(sock, PROOF_BYTES, deadline)
    if not hmac.compare_digest(proof, _proof(credentials, b"connect", peer_hello, own_hello)):
        _write(sock, _NO_PROOF + bytes(REFUSAL_BYTES), deadline)
        raise PeerRefused("a peer does not know the secret")
    reason = admit(peer)
    refusal = (reason or "").encode()[:REFUSAL_BYTES].ljust(REFUSAL_BYTES, b"\0")
    _write(sock, _proof(credentials, b"listen", peer_hello, own_hello, refusal) + refusal, deadline)
    if reason:
        raise PeerRefused(reason)
    return peer


def initiate(
    sock: socket.socket, credentials: Credentials, identity: Identity, expected: Identity, deadline: float
) -> None:
    """The connecting side of a handshake.

    Args:
        identity: of this side.
        expected: the identity that the peer must prove.
        deadline: a time of time.monotonic().

    Raises:
        PeerRefused, ConnectionLost, OSError.
    """
    deadline = min(deadline, time.monotonic() + HANDSHAKE_SECONDS)
    own_hello = hello(identity)
    _write(sock, own_hello, deadline)
    peer_hello = _read(sock, HELLO.size, deadline)
    peer = _parse_hello(peer_hello)
    _write(sock, _proof(credentials, b"connect", own_hello, peer_hello), deadline)
    answer = _read(sock, PROOF_BYTES + REFUSAL_BYTES, deadline)
    proof, refusal = answer[:PROOF_BYTES], answer[PROOF_BYTES:]
    if not hmac.compare_digest(proof, _proof(credentials, b"listen", own_hello, peer_hello, refusal)):
        raise PeerRefused("%s does not share this run's secret" % describe(expected))
    reason = refusal.rstrip(b"\0").decode(errors="replace")
    if reason:
        raise PeerRefused("%s refused the connection: %s" % (describe(expected), reason))
    if peer != expected:
        identities = describe(expected), expected.attempt, describe(peer), peer.attempt
        raise PeerRefused("expected %s (attempt %d), met %s (attempt %d)" % identities)


def hello(identity: Identity) -> bytes:
    """The first message of either side: its identity and a fresh nonce."""
    return HELLO.pack(MAGIC, VERSION, ROLES.index(identity.role), identity.rank, identity.attempt, os.urandom(32))


def _parse_hello(hello: bytes) -> Identity:
    magic, version, role, rank, attempt, _ = HELLO.unpack(hello)
    if magic != MAGIC or role >= len(ROLES):
        raise PeerRefused("the peer speaks another protocol")
    if version != VERSION:
        raise PeerRefused("the peer speaks version %d of the protocol, this is version %d" % (version, VERSION))
    return Identity(ROLES[role], rank, attempt)


def _proof(credentials: Credentials, label: bytes, connecting: bytes, listening: bytes, refusal: bytes = b"") -> bytes:
    # Each field has a fixed length (the run's name as its hash), so no two messages have the same bytes.
    run = hashlib.sha256(credentials.run.encode()).digest()
    message = label.ljust(8, b"\0") + run + connecting + listening + refusal
    return hmac.new(credentials.secret, message, hashlib.sha256).digest()


def _read(sock: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))  # a peer that sends single bytes gains no time
        received = sock.recv(size - len(data))
        if not received:
            raise ConnectionLost("closed during the handshake")
        data += received
        if time.monotonic() >= deadline:
            raise ConnectionLost("the handshake took too long")
    return bytes(data)


def _write(sock: socket.socket, data: bytes, deadline: float) -> None:
    sock.settimeout(max(deadline - time.monotonic(), 0.001))
    sock.sendall(data)
