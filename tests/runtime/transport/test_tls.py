"""Encrypted connections: who gets in, what a listener on the wire sees, and what the ring needs of a socket."""

import contextlib
import glob
import json
import os
import select
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from support.acceptors import DRIVER, Acceptor
from support.capture import Capture
from support.certificates import certificate
from support.paths import ROOT
from support.rings import CREDENTIALS, RUN, SECRET, ThreadRing, credentials, together
from support.until import until

from ddl_magics.runtime.collectives.peer_listener import HOST, RING, PeerListener
from ddl_magics.runtime.transport import tls, wire
from ddl_magics.runtime.transport.credentials import Credentials
from ddl_magics.runtime.transport.wire import ConnectionLost, Identity, PeerRefused

RANK = Identity("rank", 1, 0)


@pytest.fixture
def encrypted():
    return credentials("encrypted")


@pytest.fixture
def acceptor(encrypted):
    with contextlib.closing(Acceptor(encrypted)) as acceptor:
        yield acceptor


def test_only_the_certificate_of_the_run_gets_in(acceptor):
    """Also where a peer knows the secret."""
    of_another_run = Credentials(RUN, SECRET, certificate("another run"))
    with pytest.raises(PeerRefused, match="certificate"):
        wire.connect(acceptor.address, of_another_run, RANK, DRIVER, 2)
    with pytest.raises(ConnectionLost):
        wire.connect(acceptor.address, CREDENTIALS, RANK, DRIVER, 0.5)  # without encryption
    until(lambda: acceptor.listener.refused >= 2, 5)
    assert acceptor.channels == []


#: A rank of a cluster whose Python is the oldest that the runtime is for: it asks, and prints the answer.
OLD_RANK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from runtime.transport import credentials, wire
about = json.loads(sys.stdin.read())
of_run = credentials.Credentials.from_json(about["credentials"])
identities = wire.Identity("rank", 1, 0), wire.Identity("driver", -1, 0)
channel = wire.connect(tuple(about["address"]), of_run, *identities, 10)
channel.send(7, bytes(1 << 20))
print(sys.version_info[:2], type(channel.socket).__name__, len(channel.recv(1 << 20)[1]))
"""


def oldest_python():
    """The command of a Python 3.8, or None."""
    found = [shutil.which("python3.8"), *glob.glob(os.path.expanduser("~/.pyenv/versions/3.8.*/bin/python"))]
    runs = (each for each in found if each and subprocess.run([each, "-V"], capture_output=True).returncode == 0)
    return next(runs, None)


@pytest.mark.skipif(oldest_python() is None, reason="there is no Python 3.8")
def test_a_rank_in_python_3_8_gets_in(acceptor, encrypted):
    about = json.dumps({"credentials": encrypted.to_json(), "address": acceptor.address})
    command = [oldest_python(), "-c", OLD_RANK, str(ROOT / "ddl_magics")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as rank:
        rank.stdin.write(about)
        rank.stdin.close()
        (channel,) = until(lambda: acceptor.channels, 20)
        kind, payload = channel.recv(1 << 20)
        assert (kind, len(payload)) == (7, 1 << 20)
        channel.send(8, bytes(1 << 20))
        assert rank.stdout.read() == f"(3, 8) TlsSocket {1 << 20}\n"


def test_a_peer_without_a_certificate_or_with_an_old_protocol_does_not_get_in(acceptor):
    for version, ends in ((None, (ssl.SSLError, ConnectionError)), (ssl.TLSVersion.TLSv1_2, (ssl.SSLError, OSError))):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if version:
            context.maximum_version = version
        plain = socket.create_connection(acceptor.address)
        with pytest.raises(ends), context.wrap_socket(plain) as sock:
            sock.sendall(b"hello")
            if sock.recv(1) == b"":
                raise ConnectionResetError
        plain.close()
    assert acceptor.channels == []


@pytest.mark.parametrize("seconds", [0.2, -1.0])
def test_a_peer_that_says_nothing_is_given_up_in_time(encrypted, seconds):
    ours, theirs = socket.socketpair()
    with contextlib.closing(theirs), pytest.raises((ConnectionLost, OSError)):
        began = time.monotonic()
        tls.encrypt(ours, encrypted.certificate, listens=True, deadline=began + seconds)
    assert time.monotonic() - began < 10


def test_a_listener_that_does_not_have_the_certificate_is_not_told_anything(encrypted):
    other = Credentials(RUN, SECRET, certificate("another run"))
    impostor = Acceptor(other)
    with pytest.raises(PeerRefused, match="does not have the certificate of this run"):
        wire.connect(impostor.address, encrypted, RANK, DRIVER, 2)
    impostor.close()


def test_strangers_that_send_nothing_or_noise_keep_nobody_out(acceptor, encrypted):
    strangers = [socket.create_connection(acceptor.address) for _ in range(40)]
    for number, stranger in enumerate(strangers):
        stranger.sendall((b"", b"\x16\x03\x01\x40\x00", b"\x16" + bytes(500), b"GET / HTTP/1.1\r\n\r\n")[number % 4])
    start = time.monotonic()
    wire.connect(acceptor.address, encrypted, RANK, DRIVER, 10).close()
    assert time.monotonic() - start < 5
    for stranger in strangers:
        stranger.close()


def test_ranks_exchange_data_on_encrypted_connections_alone(encrypted):
    """Those of ranks on one host carry none, and are made for nothing else."""
    listener = PeerListener("127.0.0.1", encrypted, 0, 0, 2)
    me, peer = Identity("rank", 1, 0), Identity("rank", 0, 0)
    made = [wire.connect(listener.address, encrypted, me, peer, 5, plain) for plain in (True, True, False)]
    for channel, purpose in zip(made, (RING, HOST, RING), strict=True):
        channel.send(purpose)
    with pytest.raises(ConnectionLost):
        made[0].recv()
    accepted = [listener.wait_for(1, purpose, time.monotonic() + 5) for purpose in (HOST, RING)]
    assert [channel.encrypted for channel in accepted] == [False, True]
    for channel in [*made, *accepted]:
        channel.close(0)
    listener.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("transport", ["tcp", "encrypted tcp"])
def test_who_listens_on_the_wire_reads_nothing(transport):
    """The control is the same without encryption: there the numbers are found."""
    import numpy as np

    from ddl_magics.runtime.collectives.announcement import STEP, Announcement

    numbers = np.random.default_rng(time.time_ns()).normal(size=1_000_000).astype(np.float32)  # in no other traffic

    def step(ring):
        ring.allreduce(numbers.copy(), Announcement(STEP))

    with Capture() as capture, ThreadRing(2, transport) as ring:
        ring.each(step)
    sums = (2 * numbers[:16]).tobytes()
    assert capture.holds(numbers[:16].tobytes()) == capture.holds(sums) == (transport == "tcp")
    assert transport == "tcp" or sum(map(len, capture.beginning(b"\x16\x03"))) > numbers.nbytes


# The socket.


@pytest.fixture
def pair():
    """Two ends of a connection, encrypted: (sender, receiver)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    deadline = time.monotonic() + 5
    both = together(
        [
            lambda: tls.encrypt(one, certificate(), False, deadline),
            lambda: tls.encrypt(other, certificate(), True, deadline),
        ]
    )
    yield both
    for sock in both:
        sock.close()


def test_what_is_not_sent_yet_is_sent_later(pair):
    sender, receiver = pair
    sender.setblocking(False)
    data = bytes(range(256)) * 100_000
    view, taken = memoryview(data), 0
    while True:
        try:
            taken += sender.sendmsg([view[taken:]])
        except BlockingIOError:
            break
    assert sender.unsent and 0 < taken < len(data)
    received, whole = bytearray(), threading.Event()

    def receive():
        while len(received) < len(data):
            received.extend(receiver.recv(1 << 20))
        whole.set()

    threading.Thread(target=receive, daemon=True).start()
    poll = select.poll()
    poll.register(sender, select.POLLOUT)
    while taken < len(data) or sender.unsent:
        assert poll.poll(5000)
        with contextlib.suppress(BlockingIOError):
            taken += sender.sendmsg([view[taken:]])
    assert whole.wait(10) and received == data


def test_nothing_is_left_where_poll_does_not_see_it(pair):
    sender, receiver = pair
    receiver.setblocking(False)
    poll = select.poll()
    poll.register(receiver, select.POLLIN)
    sender.sendall(b"x" * 100_000)
    received = 0
    while received < 100_000:
        assert poll.poll(5000)
        with contextlib.suppress(BlockingIOError):
            while True:
                received += receiver.recv_into(bytearray(777))
    assert received == 100_000 and not poll.poll(0)


def test_changed_bytes_end_the_connection(pair):
    sender, receiver = pair
    record = b"\x17\x03\x03" + struct.pack("!H", 40) + bytes(40)
    socket.socket.sendall(sender, record)  # as somebody on the wire
    with pytest.raises(ssl.SSLError):
        receiver.recv(10)


def test_an_end_is_an_end(pair):
    sender, receiver = pair
    sender.sendall(b"last")
    sender.close()
    assert (receiver.recv(10), receiver.recv(10)) == (b"last", b"")
