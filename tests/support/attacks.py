"""What a stranger on the network can try against a listening port of a run: `attack_all(address)`.

An attack passes (`refused`) when the port's owner closed the connection in time and gave away no more than its hello
and the bare refusal. Whether the owner then still serves its peers is for the caller to see.
"""

import contextlib
import os
import pickle
import random
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ddl_magics.runtime.transport import handshake, wire

#: What a busy machine may take beyond the handshake's own bound.
GRACE_SECONDS = 1.0
#: The listener's hello and its answer: the most that a stranger may receive.
MOST_BYTES = handshake.HELLO.size + handshake.PROOF_BYTES + handshake.REFUSAL_BYTES
FLOOD_CONNECTIONS = 150

_FRAME = struct.Struct("!BQ")


class Outcome(NamedTuple):
    """How an attack ended. received: by the attacker; seconds: until the listener closed the connection."""

    attack: str
    refused: bool
    seconds: float
    received: bytes
    detail: str


class Canary:
    """Unpickling it creates the file `path`."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mknod, (str(self.path),)


def patience():
    """The seconds after which a listener must have closed a stranger's connection."""
    return handshake.HANDSHAKE_SECONDS + GRACE_SECONDS


def attack_all(address, captured=None, canary=None):
    """Runs all attacks against `address` at the same time; returns their outcomes.

    captured: bytes that a good peer sent in its handshake and after it, from `Tap`, to be replayed. canary: a path at
    which a file appears if something unpickles what it reads.
    """
    generator = random.Random(1)
    roles = ("rank", "supervisor", "driver", "server")
    hellos = [_hello(role) for role in roles]
    zeros = bytes(handshake.PROOF_BYTES)
    huge = [_FRAME.pack(1, length) for length in (2**31, 2**40, 2**63, 2**64 - 1)]
    scripts = {
        "silence": [b""],
        "half a hello": [hellos[0][:20]],
        "a hello and silence": [hellos[0]],
        "an HTTP request": [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
        "a hello of another version": [hellos[0][:4] + b"\x09" + hellos[0][5:]],
        "an unknown role": [hellos[0][:5] + b"\xff" + hellos[0][6:]],
    }
    for role, hello in zip(roles, hellos, strict=True):
        scripts[f"a wrong proof as {role}"] = [hello, generator.randbytes(handshake.PROOF_BYTES)]
    for index, size in enumerate((1, 53, 54, 55, 4096, 1 << 20)):
        scripts[f"random bytes {index}"] = [generator.randbytes(size)]
    for index, frame in enumerate(huge):
        scripts[f"an oversized frame {index}"] = [frame * 64]
        scripts[f"an oversized frame after a hello {index}"] = [hellos[0], frame * 64]
        scripts[f"an oversized frame after a wrong proof {index}"] = [hellos[0], zeros + frame * 64]
    if canary is not None:
        bomb = pickle.dumps(Canary(canary))
        scripts["a pickle"] = [bomb]
        scripts["a pickle in a frame"] = [hellos[0], zeros + _FRAME.pack(1, len(bomb)) + bomb]
    if captured is not None:
        scripts["a replayed handshake"] = [captured]
        size = handshake.HELLO.size
        scripts["a replayed handshake in two parts"] = [captured[:size], captured[size:]]
    attacks = [lambda name=name, parts=parts: _send(name, address, parts) for name, parts in scripts.items()]
    talks = {"an echo": _echo, "a slow drip": _drip, "a hello, then nothing more to come": _half_close}
    attacks += [lambda name=name, talk=talk: _attack(name, address, talk) for name, talk in talks.items()]
    attacks += [lambda role=role: _guess(address, role) for role in roles]
    with ThreadPoolExecutor(len(attacks)) as pool:
        outcomes = list(pool.map(lambda attack: attack(), attacks))
    return [*outcomes, flood(address)]


def flood(address):
    """Opens many connections and sends nothing: the listener must close each."""
    start = time.monotonic()
    socks, refused = [], 0
    for _ in range(FLOOD_CONNECTIONS):
        try:
            socks.append(socket.create_connection(address, patience()))
        except OSError:
            refused += 1
    deadline = time.monotonic() + patience()
    rests = [_rest(sock, deadline) for sock in socks]
    for sock in socks:
        sock.close()
    left_open = sum(not closed for _, closed in rests)
    received = b"".join(data for data, _ in rests)
    detail = f"{refused} not connected, {left_open} of {FLOOD_CONNECTIONS} left open"
    return Outcome("a flood", not left_open and not received, time.monotonic() - start, received, detail)


class Tap:
    """A relay before `address` that records what connecting peers send: `sent()`, in order."""

    def __init__(self, address):
        self._target = address
        self._records = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def sent(self):
        return [bytes(record) for record in self._records]

    def close(self):
        self._socket.close()

    def _serve(self):
        while True:
            try:
                peer, _ = self._socket.accept()
                target = socket.create_connection(self._target)
            except OSError:
                return
            of_peer, of_target = self._begin()
            for arguments in ((peer, target, of_peer), (target, peer, of_target)):
                threading.Thread(target=self._relay, args=arguments, daemon=True).start()

    def _begin(self):
        """A connection begins: what `_relay` gets for its two directions."""
        self._records.append(bytearray())
        return self._records[-1], bytearray()

    def _relay(self, source, sink, record):
        with contextlib.suppress(OSError):  # one side has hung up: so does the relay
            while data := source.recv(65536):
                record += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def _hello(role):
    identity = wire.Identity(role, 1 if role in ("rank", "supervisor") else -1, 0)
    return handshake.hello(identity)


def _send(name, address, pieces):
    """Sends the pieces, each but the first after an answer or a second, then reads to the end."""

    def talk(sock):
        received = b""
        for index, piece in enumerate(pieces):
            if index:
                sock.settimeout(1.0)
                received += sock.recv(4096)
            sock.sendall(piece)
        return received

    return _attack(name, address, talk)


def _echo(sock):
    """Sends back all it receives, so that the listener gets its own proofs."""
    sock.sendall(_hello("rank"))
    sock.settimeout(patience())
    received = b""
    while data := sock.recv(4096):
        received += data
        sock.sendall(data)
    return received


def _drip(sock):
    """Sends a byte at a time: each one is in time, but all of them never are."""
    deadline = time.monotonic() + patience()
    sock.settimeout(0.25)
    for byte in _hello("rank") * 10:
        sock.sendall(bytes([byte]))
        try:
            if not sock.recv(4096):
                break
        except TimeoutError:
            if time.monotonic() > deadline:
                break
    return b""


def _half_close(sock):
    sock.sendall(_hello("rank"))
    sock.shutdown(socket.SHUT_WR)
    return b""


def _guess(address, role):
    """The real protocol with a guessed secret."""
    start = time.monotonic()
    name = f"a guessed secret as {role}"
    me = wire.Identity(role, 1, 0)
    try:
        channel = wire.connect(address, wire.Credentials("guess", b"guess"), me, me, patience())
    except (wire.PeerRefused, wire.ConnectionLost) as error:
        return Outcome(name, True, time.monotonic() - start, b"", str(error))
    channel.close()
    return Outcome(name, False, time.monotonic() - start, b"", "let in")


def _attack(name, address, talk):
    """Runs `talk(socket) -> bytes received` on a connection and sees how the other side ends it."""
    start = time.monotonic()
    received = b""
    try:
        with socket.create_connection(address, patience()) as sock:
            with contextlib.suppress(ConnectionError, TimeoutError):  # hung up on while it was talking
                received = talk(sock)
            rest, closed = _rest(sock, start + patience())
            received += rest
    except ConnectionRefusedError:
        return Outcome(name, True, time.monotonic() - start, b"", "nobody listens")
    except OSError as error:
        return Outcome(name, False, time.monotonic() - start, b"", f"no connection: {error}")
    harmless = len(received) <= MOST_BYTES and not any(received[handshake.HELLO.size :])
    detail = "closed" if closed else "left open"
    return Outcome(name, closed and harmless, time.monotonic() - start, received, detail)


def _rest(sock, deadline):
    """(what is still received, whether the other side closed before `deadline`)."""
    received = b""
    try:
        while time.monotonic() < deadline and len(received) < 1 << 20:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(65536)
            if not data:
                return received, True
            received += data
    except TimeoutError:
        return received, False
    except OSError:
        return received, True
    return received, False
