"""Frames between authenticated peers: what arrives, what is refused, how connections end."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import numpy as np
import pytest
from support.acceptors import DRIVER, Acceptor
from support.paths import environment
from support.rings import CREDENTIALS, RUN, SECRET, credentials, together
from support.until import until

from ddl_magics.runtime.transport import memory_file, messages, sockets, wire
from ddl_magics.runtime.transport.credentials import Credentials
from ddl_magics.runtime.transport.wire import ConnectionLost, Identity, PeerRefused, ProtocolError

RANK = Identity("rank", 1, 3)
HEADER = struct.Struct("!BQ")


@pytest.fixture(params=["plain", "encrypted"])
def acceptor(request):
    with contextlib.closing(Acceptor(credentials(request.param))) as acceptor:
        yield acceptor


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), sockets.NO_ANSWER),
        (ConnectionLost("rank 1 is gone"), "rank 1 is gone"),
        (EOFError(), "EOFError"),
    ],
)
def test_each_error_has_words(error, text):
    assert sockets.error_text(error) == text


@pytest.fixture
def pair(acceptor):
    """The two ends of a connection: the rank's and the driver's."""
    channel = wire.connect(acceptor.address, acceptor.credentials, RANK, DRIVER, 5)
    yield channel, acceptor.wait_for()[0]
    channel.close(0)


def test_both_ends_know_each_other(pair, acceptor):
    rank, driver = pair
    assert (driver.peer, rank.peer) == (RANK, DRIVER)
    assert driver.address == rank.socket.getsockname()
    assert rank.encrypted == driver.encrypted == (acceptor.credentials.certificate is not None)
    assert rank.local_host == driver.local_host == "127.0.0.1"


def test_frames_arrive_as_they_were_sent(pair):
    rank, driver = pair
    array = np.arange(100_000, dtype=np.float32)
    many = [bytes([i]) * i for i in range(200)]  # more buffers than one system call takes
    sent = threading.Thread(
        target=lambda: (
            rank.send(0),
            rank.send(7, b"head", array, np.zeros(0), memoryview(b"tail")),
            rank.send(255, *many),
            rank.send_json(3, {"ö": [1, None]}),
            rank.send_json(3, [os.fsdecode(b"caf\xe9.csv")]),
        )
    )
    sent.start()
    assert driver.recv() == (0, b"")
    assert driver.recv() == (7, b"head" + array.tobytes() + b"tail")
    assert driver.recv() == (255, b"".join(many))
    kind, text = driver.recv()
    assert (kind, text, messages.parse(text)) == (3, '{"ö":[1,null]}'.encode(), {"ö": [1, None]})
    assert driver.recv() == (3, b'["caf?.csv"]'), "a surrogate, of a name that is no UTF-8, would be refused as JSON"
    sent.join()


def test_frames_fill_a_buffer_in_place(pair):
    rank, driver = pair
    buffer = np.zeros(1000)
    rank.send(4, np.arange(1000.0))
    rank.send(5)
    assert driver.recv_into(buffer) == 4
    assert driver.recv_into(np.zeros(0)) == 5
    np.testing.assert_array_equal(buffer, np.arange(1000.0))


def test_frames_of_many_threads_do_not_mix(pair):
    rank, driver = pair

    def send(index):
        for _ in range(50):
            rank.send(index, bytes([index]) * 5000, bytes([index]) * 5000)

    def receive():
        return [driver.recv() for _ in range(200)]

    frames = together([receive, *[lambda i=i: send(i) for i in range(1, 5)]])[0]
    assert all(payload == bytes([kind]) * 10_000 for kind, payload in frames)
    assert sorted(kind for kind, _ in frames) == sorted(list(range(1, 5)) * 50)


@pytest.mark.parametrize("length", [101, 2**32, 2**64 - 1])
def test_a_frame_above_the_limit_ends_the_connection_before_memory_is_taken(pair, length):
    rank, driver = pair
    rank.socket.sendall(HEADER.pack(1, length))
    with pytest.raises(ProtocolError, match=f"rank 1 sent a frame of {length} bytes, at most 100 were expected"):
        driver.recv(limit=100)
    with pytest.raises(ConnectionLost):
        rank.recv()
    with pytest.raises(ConnectionLost):
        driver.recv()


def test_a_frame_of_another_length_than_the_buffer_is_refused(pair):
    rank, driver = pair
    rank.send(1, b"12345")
    with pytest.raises(ProtocolError, match="a frame of 5 bytes where 4 were expected"):
        driver.recv_into(bytearray(4))


def test_a_timeout_between_frames_leaves_the_channel_usable(pair):
    rank, driver = pair
    driver.settimeout(0.05)
    with pytest.raises(socket.timeout):
        driver.recv()
    rank.send(1, b"late")
    assert driver.recv() == (1, b"late")


def test_a_peer_that_stalls_within_a_frame_is_lost(pair):
    rank, driver = pair
    driver.settimeout(0.1)
    rank.socket.sendall(HEADER.pack(1, 100) + b"half of it")
    with pytest.raises(ConnectionLost, match="rank 1: no answer in time"):
        driver.recv()


def test_a_peer_that_does_not_read_is_lost_after_a_timeout(pair):
    rank, _ = pair
    rank.settimeout(0.1)
    with pytest.raises(ConnectionLost, match="the driver: no answer in time"):
        rank.send(1, bytes(64 << 20))


def test_close_wakes_waiting_threads(pair):
    rank, driver = pair
    threading.Timer(0.1, rank.close, [0]).start()
    waiting = [lambda: rank.send(1, bytes(64 << 20)), rank.recv, lambda: time.sleep(0.2) or driver.recv()]
    start = time.monotonic()
    errors = together(waiting)
    assert time.monotonic() - start < 2
    assert [type(error) for error in errors] == [ConnectionLost] * 3
    assert "closed by this side" in str(errors[1])
    rank.close()


def test_sent_data_arrive_although_the_sender_closes_with_unread_data(pair):
    rank, driver = pair
    driver.send(9, b"never read")
    time.sleep(0.05)
    payload = bytes(2_000_000)
    outcome = together([lambda: (rank.send(1, payload), rank.close()), driver.recv])
    assert outcome[1] == (1, payload)


def test_a_socketpair_makes_a_channel_too():
    one, other = (wire.Channel(sock, RANK) for sock in socket.socketpair())
    one.send(1, b"hello")
    assert other.recv() == (1, b"hello")
    one.close()
    with pytest.raises(ConnectionLost):
        other.recv()
    other.close()


# Authentication.


@pytest.mark.parametrize(
    ("secret", "run", "says"),
    [(b"guessed", RUN, "does not share this run's secret"), (SECRET, "run-2", "does not share this run's secret")],
)
def test_another_secret_or_run_is_refused(acceptor, secret, run, says):
    with pytest.raises(PeerRefused, match=says):
        wire.connect(acceptor.address, Credentials(run, secret, acceptor.credentials.certificate), RANK, DRIVER, 5)
    assert not acceptor.channels
    until(lambda: acceptor.listener.refused == 1, 5)  # counted after the refusal was sent


def test_a_refused_peer_gets_the_reason():
    acceptor = Acceptor(admit=lambda peer: None if peer.attempt == 4 else f"attempt {peer.attempt} is over")
    with pytest.raises(PeerRefused, match="the driver refused the connection: attempt 3 is over"):
        wire.connect(acceptor.address, CREDENTIALS, RANK, DRIVER, 5)
    wire.connect(acceptor.address, CREDENTIALS, RANK._replace(attempt=4), DRIVER, 5).close()
    assert [channel.peer.attempt for channel in acceptor.wait_for()] == [4]
    acceptor.close()


def test_a_listener_with_another_identity_is_refused(acceptor):
    with pytest.raises(PeerRefused, match=r"expected .*server.*, met .*driver"):
        wire.connect(acceptor.address, acceptor.credentials, RANK, Identity("server", -1, 0), 5)


def test_connect_tries_a_few_times_a_second(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        tries = []
        monkeypatch.setattr(wire, "_connect_once", lambda *_: tries.append(1) or os.close(-1))
        with pytest.raises(ConnectionLost):
            wire.connect(taken.getsockname(), CREDENTIALS, RANK, DRIVER, 0.5)
    assert 1 < len(tries) <= 0.5 / wire.RETRY_SECONDS


def test_connect_waits_for_a_listener_and_gives_up_in_time():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: connections are refused
        address = taken.getsockname()
        start = time.monotonic()
        with pytest.raises(ConnectionLost, match=r"no connection to the driver at 127.0.0.1:\d+ within 0.5 s"):
            wire.connect(address, CREDENTIALS, RANK, DRIVER, 0.5)
        assert 0.3 < time.monotonic() - start < 1.5
        # a listener that sends nothing
        taken.listen()
        with pytest.raises(ConnectionLost, match=r"within 0\.5 s: no answer in time"):
            wire.connect(address, CREDENTIALS, RANK, DRIVER, 0.5)


def test_a_closed_listener_admits_nobody_and_keeps_its_channels(pair, acceptor):
    rank, driver = pair
    acceptor.listener.close()
    with pytest.raises(ConnectionLost):
        wire.connect(acceptor.address, acceptor.credentials, RANK, DRIVER, 0.3)
    rank.send(1)
    assert driver.recv() == (1, b"")


def test_a_forked_child_does_not_keep_its_dead_parents_connections(acceptor):
    """A data loader that the cell has forked may outlive its rank. The peers must notice the rank's death."""
    program = (
        "import os, signal, sys, time\n"
        "from ddl_magics.runtime.transport import wire\n"
        f"known = wire.Credentials.from_json({acceptor.credentials.to_json()!r})\n"
        "channel = wire.connect(('127.0.0.1', int(sys.argv[1])), known, wire.Identity('rank', 1, 3),"
        " wire.Identity('driver', -1, 0), 5)\n"
        "child = os.fork()\n"
        "if not child: time.sleep(5); os._exit(0)\n"
        "print(child, flush=True)\n"
        "time.sleep(0.2)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", program, str(acceptor.address[1])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    child = int(process.stdout.readline())
    try:
        (channel,) = acceptor.wait_for()
        channel.settimeout(3)
        with pytest.raises(ConnectionLost, match="connection closed"):
            channel.recv()
        os.kill(child, 0)  # it still lives
    finally:
        os.kill(child, 9)
        process.wait()
        process.stdout.close()


def test_each_kind_of_frame_has_a_number_of_its_own():
    kinds = [value for name, value in vars(messages).items() if name.isupper() and name != "CHUNK_BYTES"]
    assert len(kinds) > 10 and len(set(kinds)) == len(kinds)


def test_where_the_system_has_no_name_for_the_host_no_two_processes_share_memory(monkeypatch):
    assert memory_file.host_id() == memory_file.host_id()
    monkeypatch.setattr(memory_file, "open", Mock(side_effect=OSError), raising=False)
    assert len({memory_file.host_id() for _ in range(3)}) == 3
