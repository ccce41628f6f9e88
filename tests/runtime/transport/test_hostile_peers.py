"""Strangers on the network: they are refused, nothing of theirs is parsed, and training continues."""

import contextlib
import os
import socket
import threading
import time

import numpy as np
import pytest
from support import acceptors, attacks
from support.acceptors import DRIVER
from support.rings import CREDENTIALS, ThreadRing, together
from support.until import until

from ddl_magics.runtime.collectives import rendezvous
from ddl_magics.runtime.collectives.announcement import STEP
from ddl_magics.runtime.collectives.collective import Announcement
from ddl_magics.runtime.collectives.peer_listener import PeerListener
from ddl_magics.runtime.transport import handshake, wire

MEBIBYTE = 1 << 20


@pytest.fixture(autouse=True)
def short_handshakes(monkeypatch):
    """A handshake may take 5 s. Only the tests of live runs wait that long."""
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 1.5)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files():
    return len(os.listdir("/proc/self/fd"))


class Training:
    """Three ranks that do all-reduces while the block lasts. steps: how many; failures: the exceptions of one."""

    def __init__(self):
        self.steps, self.failures = 0, []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._train)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _train(self):
        buffers = np.ones((3, 200_000), np.float32)

        def step(rank):
            buffer = buffers[rank.rank]
            buffer.fill(rank.rank)
            announcements = rank.allreduce(buffer, Announcement(STEP, step=self.steps, weight=rank.rank))
            assert [announcement.weight for announcement in announcements] == [0, 1, 2]
            assert buffer.min() == buffer.max() == 3

        with ThreadRing(3) as ring:
            while not self._over.is_set() and not self.failures:
                self.failures = [outcome for outcome in ring.each(step) if outcome is not None]
                self.steps += 1
                time.sleep(0.01)


class Acceptor(acceptors.Acceptor):
    """admitted: the identities that were asked for."""

    def __init__(self):
        self.admitted = []
        super().__init__(admit=self.admitted.append)

    def exchange_with_peer(self, rank=1, address=None):
        """Connects a good peer and receives a frame from it; returns True."""
        me = wire.Identity("rank", rank, 0)
        channel = wire.connect(address or self.address, CREDENTIALS, me, DRIVER, 10)
        channel.send(1, b"hello")
        while not (mine := [c for c in self.channels if c.address == channel.socket.getsockname() or address]):
            time.sleep(0.001)
        assert mine[-1].recv() == (1, b"hello")
        channel.close()
        return True


@pytest.fixture
def acceptor():
    with contextlib.closing(Acceptor()) as acceptor:
        yield acceptor


def test_every_attack_on_a_listener_is_refused_while_ranks_train(acceptor, tmp_path):
    tap = attacks.Tap(acceptor.address)
    acceptor.exchange_with_peer(address=tap.address)
    tap.close()
    captured = tap.sent()[0]
    assert len(captured) > handshake.HELLO.size + handshake.PROOF_BYTES
    acceptor.admitted.clear()
    files, threads, memory = open_files(), threading.active_count(), resident_bytes()
    with Training() as training:
        outcomes = attacks.attack_all(acceptor.address, captured, canary=tmp_path / "canary")
        during = training.steps
        acceptor.exchange_with_peer()
    assert [outcome for outcome in outcomes if not outcome.refused] == []
    assert len(outcomes) > 30
    assert training.failures == []
    assert during > 20
    assert len(acceptor.admitted) == 1  # the good peer: no stranger got as far as `admit`
    assert not (tmp_path / "canary").exists()
    assert acceptor.listener.refused >= len(outcomes)
    assert resident_bytes() - memory < 64 * MEBIBYTE
    until(lambda: open_files() <= files + 2 and threading.active_count() <= threads, 3, pause=0.02)


def test_a_good_peer_connects_during_a_flood(acceptor):
    over = threading.Event()
    crowd = []

    def flood():
        while not over.is_set():
            with contextlib.suppress(OSError):  # the queue of the port is full for the moment
                crowd.append(socket.create_connection(acceptor.address, 0.2))
            if len(crowd) > 300:
                crowd.pop(0).close()

    before = threading.active_count()
    flooders = [threading.Thread(target=flood) for _ in range(2)]
    for thread in flooders:
        thread.start()
    try:
        time.sleep(0.2)
        most = 0
        for rank in range(5):
            assert acceptor.exchange_with_peer(rank)
            most = max(most, threading.active_count())
    finally:
        over.set()
        for thread in flooders:
            thread.join()
        for sock in crowd:
            sock.close()
    assert acceptor.listener.refused > wire.HANDSHAKES_AT_ONCE
    assert most - before <= wire.HANDSHAKES_AT_ONCE + 10


def test_ranks_connect_under_attack_and_then_have_no_open_port():
    listeners = [PeerListener("127.0.0.1", CREDENTIALS, rank, 0, 3) for rank in range(3)]
    addresses = [listener.address for listener in listeners]

    def connect(rank):
        time.sleep(rank)  # the last one comes in the middle of the attack
        return rendezvous.connect(listeners[rank], addresses)

    attacked = addresses[0]  # waits for rank 2
    outcomes, *ring = together([lambda: attacks.attack_all(attacked), *[lambda r=r: connect(r) for r in range(3)]])
    assert [outcome for outcome in outcomes if not outcome.refused] == []
    buffers = np.ones((3, 1000))
    together([lambda r=r: r.allreduce(buffers[r.rank], Announcement(STEP)) for r in ring])
    assert (buffers == 3).all()
    for address in addresses:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 1)
    together([lambda r=r: r.close("the test is over") for r in ring])


@contextlib.contextmanager
def serving(behave):
    """The address of a port where `behave(socket)` is done with each peer, one after the other."""

    def serve():
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):  # the peer has hung up
                behave(peer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()


def test_the_attacks_succeed_against_a_careless_listener():
    """The control: none is refused by a listener that answers everybody and closes no connection."""
    peers = []

    def welcome(peer):
        peers.append(peer)
        peer.sendall(b"welcome" * 60)

    with serving(welcome) as address:
        outcomes = attacks.attack_all(address, b"captured")
    assert [outcome for outcome in outcomes if outcome.refused and "guessed secret" not in outcome.attack] == []
    for peer in peers:
        peer.close()


# The connecting side can meet a stranger too, who has taken over an address.


def silent(sock):
    time.sleep(1)


def closing(sock):
    sock.close()


def sending_noise(sock):
    sock.sendall(os.urandom(MEBIBYTE))


def echoing(sock):
    while data := sock.recv(4096):
        sock.sendall(data)


def mirroring(sock):
    """Sends back the peer's own hello, then its own proof as if it were the answer."""
    hello = sock.recv(handshake.HELLO.size)
    sock.sendall(hello)
    sock.sendall(sock.recv(4096).ljust(handshake.PROOF_BYTES + handshake.REFUSAL_BYTES, b"\0"))


def refusing(sock):
    """Refuses the peer in the driver's name, without a proof."""
    sock.recv(handshake.HELLO.size)
    sock.sendall(handshake.hello(DRIVER))
    sock.recv(4096)
    sock.sendall(bytes(handshake.PROOF_BYTES) + b"go away".ljust(handshake.REFUSAL_BYTES, b"\0"))


@pytest.mark.parametrize("behave", [silent, closing, sending_noise, echoing, mirroring, refusing])
def test_a_stranger_that_poses_as_the_driver_is_refused(behave):
    def pose(peer):
        with peer:
            behave(peer)

    start = time.monotonic()
    with serving(pose) as address, pytest.raises((wire.PeerRefused, wire.ConnectionLost)) as caught:
        wire.connect(address, CREDENTIALS, wire.Identity("rank", 1, 0), DRIVER, 0.8)
    assert "go away" not in str(caught.value)
    assert time.monotonic() - start < 2
