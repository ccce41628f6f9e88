"""Strangers on the network: they are refused, nothing of theirs is parsed, and the peers go on."""

import os
import socket
import threading
import time

import attacks
import numpy as np
import pytest
from rings import RUN, SECRET, ThreadRing, together

from ddl_magics.runtime import handshake, parts, rendezvous, wire
from ddl_magics.runtime.collective import Part
from ddl_magics.runtime.place import Place

DRIVER = wire.Identity("driver", -1, 0)
MEBIBYTE = 1 << 20


@pytest.fixture(autouse=True)
def short_handshakes(monkeypatch):
    """The bound on a handshake is 5 s; the live run's tests wait for that one."""
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 1.5)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files():
    return len(os.listdir("/proc/self/fd"))


class Training:
    """Three ranks that do all-reduces for as long as the block lasts: `steps` of them, `failures` say what broke."""

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
            told = rank.allreduce(buffer, Part(parts.STEP, step=self.steps, weight=rank.rank))
            assert [part.weight for part in told] == [0, 1, 2]
            assert buffer.min() == buffer.max() == 3

        with ThreadRing(3) as ring:
            while not self._over.is_set() and not self.failures:
                self.failures = [outcome for outcome in ring.each(step) if outcome is not None]
                self.steps += 1
                time.sleep(0.01)


class Door:
    """A listener as the driver's; `admitted` and `channels` say who came through."""

    def __init__(self):
        self.admitted, self.channels = [], []
        self.listener = wire.Listener("127.0.0.1", SECRET, RUN, DRIVER, self.admitted.append, self.channels.append)
        self.address = self.listener.address

    def visit(self, rank=1, address=None):
        """A good peer comes, is heard, and hears: True."""
        me = wire.Identity("rank", rank, 0)
        channel = wire.connect(address or self.address, SECRET, RUN, me, DRIVER, 10)
        channel.send(1, b"hello")
        while not (mine := [c for c in self.channels if c.address == channel.socket.getsockname() or address]):
            time.sleep(0.001)
        assert mine[-1].recv() == (1, b"hello")
        channel.close()
        return True


@pytest.fixture
def door():
    door = Door()
    yield door
    door.listener.close()
    for channel in door.channels:
        channel.close(0)


def test_every_attack_on_a_listener_is_refused_while_the_ranks_go_on(door, tmp_path):
    tap = attacks.Tap(door.address)
    door.visit(address=tap.address)
    tap.close()
    captured = tap.sent()[0]
    assert len(captured) > handshake.HELLO.size + handshake.PROOF_BYTES
    door.admitted.clear()
    files, threads, memory = open_files(), threading.active_count(), resident_bytes()
    with Training() as training:
        outcomes = attacks.attack_all(door.address, captured, canary=tmp_path / "canary")
        during = training.steps
        door.visit()
    assert [outcome for outcome in outcomes if not outcome.refused] == []
    assert len(outcomes) > 30
    assert training.failures == []
    assert during > 20
    assert len(door.admitted) == 1  # the good visitor: nobody else got so far as to be asked for
    assert not (tmp_path / "canary").exists()
    assert door.listener.refused >= len(outcomes)
    assert resident_bytes() - memory < 64 * MEBIBYTE
    wait_for(lambda: open_files() <= files + 2 and threading.active_count() <= threads)


def test_a_good_peer_comes_in_while_others_flood_the_port(door):
    over = threading.Event()
    crowd = []

    def flood():
        while not over.is_set():
            try:
                crowd.append(socket.create_connection(door.address, 0.2))
            except OSError:
                pass  # the queue of the port is full for the moment
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
            assert door.visit(rank)
            most = max(most, threading.active_count())
    finally:
        over.set()
        for thread in flooders:
            thread.join()
        for sock in crowd:
            sock.close()
    assert door.listener.refused > wire.HANDSHAKES_AT_ONCE
    assert most - before <= wire.HANDSHAKES_AT_ONCE + 10


def test_ranks_meet_under_attack_and_then_have_no_open_port():
    places = [Place("127.0.0.1", SECRET, RUN, rank, 0, 3) for rank in range(3)]
    addresses = [place.address for place in places]

    def connect(rank):
        time.sleep(rank)  # the last one comes in the middle of the attack
        return rendezvous.connect(places[rank], addresses)

    attacked = addresses[0]  # waits for rank 2
    outcomes, *ring = together([lambda: attacks.attack_all(attacked), *[lambda r=r: connect(r) for r in range(3)]])
    assert [outcome for outcome in outcomes if not outcome.refused] == []
    buffers = np.ones((3, 1000))
    together([lambda r=r: r.allreduce(buffers[r.rank], Part(parts.STEP)) for r in ring])
    assert (buffers == 3).all()
    for address in addresses:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 1)
    together([lambda r=r: r.close("the test is over") for r in ring])


def test_the_attacks_notice_an_owner_who_is_careless():
    """The control: a listener that answers everybody and hangs up on nobody passes none of them."""
    server = socket.create_server(("127.0.0.1", 0))
    peers = []

    def serve():
        while True:
            try:
                peer, _ = server.accept()
                peers.append(peer)
                peer.sendall(b"welcome" * 60)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    outcomes = attacks.attack_all(server.getsockname(), b"captured")
    assert [outcome for outcome in outcomes if outcome.refused and "guessed secret" not in outcome.attack] == []
    server.close()
    for peer in peers:
        peer.close()


# The connecting side meets strangers too: whoever took over an address.


def silent(sock):
    time.sleep(1)


def closing(sock):
    sock.close()


def babbling(sock):
    sock.sendall(os.urandom(MEBIBYTE))


def echoing(sock):
    while data := sock.recv(4096):
        sock.sendall(data)


def mirroring(sock):
    """Sends back the peer's own hello, then its own proof as if it were the answer."""
    hello = sock.recv(handshake.HELLO.size)
    sock.sendall(hello)
    sock.sendall(sock.recv(4096).ljust(handshake.PROOF_BYTES + handshake.VERDICT_BYTES, b"\0"))


def refusing(sock):
    """Says, without a proof, that the driver does not want this peer."""
    sock.recv(handshake.HELLO.size)
    sock.sendall(handshake.hello(DRIVER))
    sock.recv(4096)
    sock.sendall(bytes(handshake.PROOF_BYTES) + b"go away".ljust(handshake.VERDICT_BYTES, b"\0"))


@pytest.mark.parametrize("behave", [silent, closing, babbling, echoing, mirroring, refusing])
def test_whoever_poses_as_the_driver_is_not_believed(behave):
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                try:
                    behave(peer)
                except OSError:
                    pass  # the victim has hung up, as it should

    threading.Thread(target=serve, daemon=True).start()
    start = time.monotonic()
    with pytest.raises((wire.Refused, wire.ConnectionLost)) as caught:
        wire.connect(server.getsockname(), SECRET, RUN, wire.Identity("rank", 1, 0), DRIVER, 0.8)
    assert "go away" not in str(caught.value)
    assert time.monotonic() - start < 2
    server.close()


def wait_for(condition, seconds=3):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
