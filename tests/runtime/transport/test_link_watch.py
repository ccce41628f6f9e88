"""A link that is cut while data are on their way is noticed; a live peer that does not read is left alone."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from chaos import hosts
from support.acceptors import DRIVER, Acceptor
from support.paths import environment
from support.rings import CREDENTIALS

from ddl_magics.runtime.transport import link_watch, wire

RANK = wire.Identity("rank", 0, 1)

#: Connects to the driver and does not read; it says so, and ends with its standard input.
SILENT_PEER = """
import sys
from support.rings import CREDENTIALS
from ddl_magics.runtime.transport import wire
rank, driver = wire.Identity("rank", 0, 1), wire.Identity("driver", -1, 0)
channel = wire.connect((sys.argv[1], int(sys.argv[2])), CREDENTIALS, rank, driver, 10)
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(link_watch, "SILENT_SECONDS", 3.0)
    monkeypatch.setattr(link_watch, "TICK_SECONDS", 0.5)


def sending(channel):
    """A thread that sends without end, and the error that ended it."""
    errors = []

    def send():
        try:
            while True:
                channel.send(1, bytes(1 << 20))
        except wire.ConnectionLost as error:
            errors.append(str(error))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread, errors


@pytest.mark.skipif(bool(hosts.obstacle()), reason=hosts.obstacle())
def test_a_cut_link_is_noticed_while_data_are_on_their_way(short, tmp_path):
    with (
        hosts.Hosts(1, tmp_path / "hosts", "java") as network,
        contextlib.closing(Acceptor(host=network.driver_address)) as acceptor,
    ):
        command = [*network.prefix(0), sys.executable, "-c", SILENT_PEER, *map(str, acceptor.address)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment(), **pipes) as peer:
            assert peer.stdout.readline() == "connected\n"
            network.cut(0)
            began = time.monotonic()
            thread, errors = sending(acceptor.channels[0])
            thread.join(15)
            seconds = time.monotonic() - began
            peer.kill()
            assert acceptor.channels[0].is_cut
    assert errors == ["rank 0: its host does not answer"] and seconds < 8


def test_a_peer_that_does_not_read_is_alive(short):
    with contextlib.closing(Acceptor()) as acceptor:
        peer = wire.connect(acceptor.address, CREDENTIALS, RANK, DRIVER, 5)
        thread, errors = sending(*acceptor.wait_for())
        thread.join(5)
        assert thread.is_alive() and not errors and not acceptor.channels[0].is_cut
        peer.close(0)
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("probes", "unacknowledged", "sent", "acknowledged", "cut"),
    [
        (0, 0, 60_000, 60_000, False),  # milliseconds: idle, which keepalive probes see to
        (0, 0, 500, 4_000, False),
        (0, 1, 500, 4_000, True),
        (0, 1, 100, 700, True),
        (3, 0, 60_000, 4_000, True),  # of a peer whose window is closed
        (3, 0, 60_000, 200, False),  # which answers them
        (0, 1, 4_000, 500, False),
        (0, 1, 4_000, 4_000, False),
    ],
)
def test_a_link_is_cut_where_data_have_had_no_acknowledgement(probes, unacknowledged, sent, acknowledged, cut):
    told = link_watch._TCP_INFO.pack(probes, unacknowledged, sent, acknowledged)
    asked = socket.IPPROTO_TCP, socket.TCP_INFO, len(told)
    sock, link = SimpleNamespace(getsockopt=lambda *words: {asked: told}[words]), link_watch._Link(1.5)

    def looks():
        return [link.is_cut(sock, 0.5) for _ in range(4)]

    assert looks() == [False, False, cut, cut]
    silence, told = told, link_watch._TCP_INFO.pack(0, 0, 0, 0)
    assert not any(looks()), "it answers again"
    told = silence
    assert looks() == [False, False, cut, cut]
